//! `dueq schedule apply`: declares the schedules of a file.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read};
use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::anyhow;
use clap::Args;
use dueq::Queue;
use dueq::schedules::{Schedule, ScheduleChanges};
use dueq_input::DeclaredSchedule;

use crate::commands::schedule::file;
use crate::commands::schedule::outcome;
use crate::output::{Outcome, Usage};
use crate::{Common, existing, output};

/// The largest revision that the scripts accept.
const MAX_REVISION: u64 = 1 << 53;
/// The default limit of payloads, for a queue that does not exist yet.
const USUAL_PAYLOAD: u64 = 1_048_576;

#[derive(Args)]
#[command(after_help = "\
Declares the schedules of a TOML file. If one is wrong, none is changed. More than 24 are several
calls: after an interruption apply the file again. A schedule that is stored with the same content
keeps its next fire and its counts. Nothing fires because of an apply, unless --now.

A set belongs to one team or service: an apply of one set changes no schedule of another. An apply
of a lower --revision than the stored one is refused (exit code 1), so that an old process of a
rolling deploy cannot undo a new one.

The first apply gives the queue layout 4, which cannot be taken back. Workers and clients before
release 0.2 refuse such a queue, so the command refuses to begin while it sees a live worker of an
older release. A queue of several partitions has no schedules.

The file has a table for each schedule:
  [[schedule]]
  name = \"nightly\"
  cron = \"0 2 * * *\"           # minute, hour, day, month, day of the week; before them a second
  zone = \"Europe/Paris\"        # of a cron: an IANA name
  payload = '{\"report\": 1}'    # or payload_json = { report = 1 }, or payload_base64
  [[schedule]]
  name = \"heartbeat\"
  every = \"15m\"                # 10ms to 100 years, counted from 1970 or from anchor
Further keys:
  missed = \"one\"               # one, skip or all: what happens to fires that no worker took
  within = \"1h\"                # a fire that is later makes no tick
  max = 1000                   # the most ticks of missed = \"all\"
  overlap = \"allow\"            # allow, skip or replace: while an earlier tick waits or runs
  jitter = \"30s\"               # each tick is due up to this much later
  start, end = 2026-12-01T00:00:00+01:00
  anchor = 2026-12-01T00:00:00Z
  limit = 100                  # it ends after so many ticks
  max_attempts = 5             # of each tick; also expires = \"2h\" and on_expire = \"drop\"

A file with a fault changes nothing: each fault is printed with its line, and the exit code is 2.

Prints a line for each schedule: created, changed, kept or removed.

Examples:
  dueq schedule apply reports schedules.toml --set billing --revision 42 --prune --dry-run
  dueq schedule apply reports schedules.toml --set billing --revision 42 --prune
  ./make-schedules | dueq schedule apply reports - --set shops")]
pub(super) struct Apply {
    /// The queue
    queue: String,
    /// The file; - for standard input
    file: PathBuf,
    /// The set that the file declares: 1 to 100 letters, digits and . _ - : /
    #[arg(long, value_name = "NAME")]
    set: String,
    /// The revision of the file, such as the number of a deploy: 0 to 2^53
    #[arg(long, value_name = "N", value_parser = revision)]
    revision: Option<u64>,
    /// Remove the schedules of the set that the file does not declare
    #[arg(long)]
    prune: bool,
    /// Each schedule that is created makes a tick at once
    #[arg(long)]
    now: bool,
    /// Only print what the call would change
    #[arg(long)]
    dry_run: bool,
    /// Begin although a live worker has no id of this release: it is a client of yours that knows
    /// layout 4
    #[arg(long)]
    allow_older: bool,
}

fn revision(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| *number <= MAX_REVISION);
    number.ok_or_else(|| format!("{text:?} is no revision: write a number of 0 to {MAX_REVISION}"))
}

impl Apply {
    pub(super) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        let entries = self.entries(common)?;
        let (client, queue) = common.client_and_queue(&self.queue).await?;
        let made = !queue.exists().await?;
        if !made {
            self.check_queue(&queue, &entries, common).await?;
        } else {
            self.check_payloads(&entries, USUAL_PAYLOAD, common)?;
        }
        let mut set = queue.schedules(&self.set);
        if let Some(revision) = self.revision {
            set = set.revision(revision);
        }
        let set = set
            .prune(self.prune)
            .fire_now(self.now)
            .dry_run(self.dry_run);
        let lines = entries
            .iter()
            .map(|entry| (entry.name.clone(), entry.place));
        let lines: HashMap<_, _> = lines.collect();
        let schedules: Vec<Schedule> = entries.into_iter().map(|entry| entry.schedule).collect();
        let changes = match set.apply(schedules).await {
            Ok(changes) => changes,
            Err(error) if error.code() == Some("STALE") => {
                common.complain(&error.into());
                return Ok(Outcome::Refused);
            }
            Err(error) if !error.refused_schedules().is_empty() => {
                return Err(self.refused_by_server(&error, &lines, common));
            }
            Err(error) => return Err(error.into()),
        };
        let made = made && !self.dry_run;
        if made && !common.json {
            output::queue(false, &self.queue, existing::MADE, None)?;
            existing::note_near(common, &client, &self.queue).await;
        }
        self.print(&changes, made, common)?;
        Ok(Outcome::Done)
    }

    /// The name of the file for people.
    fn shown_file(&self) -> String {
        match self.is_input() {
            true => "standard input".to_owned(),
            false => self.file.display().to_string(),
        }
    }

    fn is_input(&self) -> bool {
        self.file.as_os_str() == "-"
    }

    /// Reads the file. Reports all its faults.
    fn entries(&self, common: &Common) -> anyhow::Result<Vec<DeclaredSchedule>> {
        let bytes = if self.is_input() {
            let mut bytes = Vec::new();
            io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
        } else {
            fs::read(&self.file)
        };
        let name = self.shown_file();
        let bytes = bytes.map_err(|error| anyhow!("cannot read {name}: {error}"))?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = 1 + good.iter().filter(|byte| **byte == b'\n').count();
            Usage(format!(
                "{name}:{line}: the file is not UTF-8 (nothing was changed)"
            ))
        })?;
        file::read(&text, SystemTime::now()).map_err(|faults| {
            for fault in &faults {
                let of = fault
                    .name
                    .as_ref()
                    .map(|name| format!("schedule {name:?}: "));
                let text = format!(
                    "{name}:{}: {}{}",
                    fault.place,
                    of.unwrap_or_default(),
                    fault.reason
                );
                common.complain(&Usage(text).into());
            }
            refused(&name, faults.len())
        })
    }

    /// Refuses payloads above the limit of the queue. Also refuses if the first schedule would
    /// raise the layout while a worker of an older release is live.
    async fn check_queue(
        &self,
        queue: &Queue,
        entries: &[DeclaredSchedule],
        common: &Common,
    ) -> anyhow::Result<()> {
        let stats = queue.stats().await?;
        self.check_payloads(entries, stats.max_payload_bytes, common)?;
        if self.allow_older || stats.schedules > 0 {
            return Ok(());
        }
        let older = queue.older_nodes().await?;
        let Some(first) = older.first() else {
            return Ok(());
        };
        Err(anyhow!(
            "schedules give the queue layout 4, which workers before release 0.2 refuse, and {} of its live workers may \
             be older, such as {first:?}: update them, or add --allow-older if they know layout 4 (nothing was changed)",
            older.len()
        ))
    }

    fn check_payloads(
        &self,
        entries: &[DeclaredSchedule],
        most: u64,
        common: &Common,
    ) -> anyhow::Result<()> {
        let is_large = |entry: &&DeclaredSchedule| {
            u64::try_from(entry.payload_bytes).is_ok_and(|bytes| bytes > most)
        };
        let large: Vec<_> = entries.iter().filter(is_large).collect();
        if large.is_empty() {
            return Ok(());
        }
        let file = self.shown_file();
        for entry in &large {
            let queue = dueq::admin::shell_word(self.queue.as_bytes());
            let text = format!(
                "{file}:{}: schedule {:?}: payload of {} bytes exceeds the limit of {most}; raise it with dueq \
                 configure {queue} --max-payload-bytes",
                entry.place, entry.name, entry.payload_bytes
            );
            common.complain(&Usage(text).into());
        }
        Err(refused(&file, large.len()))
    }

    /// Reports each schedule that the server refused with its line number, like faults of the file.
    fn refused_by_server(
        &self,
        error: &dueq::Error,
        lines: &HashMap<String, usize>,
        common: &Common,
    ) -> anyhow::Error {
        let (file, refused) = (self.shown_file(), error.refused_schedules());
        for (name, why) in refused {
            let line = lines.get(name).copied().unwrap_or(1);
            let text = format!("{file}:{line}: schedule {name:?}: {why}");
            common.complain(&Usage(text).into());
        }
        self::refused(&file, refused.len())
    }

    fn print(&self, changes: &ScheduleChanges, made: bool, common: &Common) -> io::Result<()> {
        let print = |name: &str, word: &str, next_ms: Option<u64>| {
            let detail = next_ms.filter(|_| word != "kept").map(output::moment);
            let detail = detail
                .map(|time| format!("next fire {time}"))
                .unwrap_or_default();
            let fields = [
                ("queue", self.queue.clone().into()),
                ("set", self.set.clone().into()),
                ("next_ms", next_ms.into()),
                ("made", made.into()),
                ("dry_run", self.dry_run.into()),
            ];
            outcome(common.json, name, word, &detail, &fields)
        };
        for (word, declared) in [
            ("created", &changes.created),
            ("changed", &changes.changed),
            ("kept", &changes.kept),
        ] {
            for declared in declared {
                print(&declared.name, word, declared.next_ms)?;
            }
        }
        for name in &changes.removed {
            print(name, "removed", None)?;
        }
        if self.dry_run && !common.json {
            output::line("dry run: nothing was changed")?;
        }
        Ok(())
    }
}

fn refused(file: &str, count: usize) -> anyhow::Error {
    let faults = if count == 1 {
        "1 fault".to_owned()
    } else {
        format!("{count} faults")
    };
    Usage(format!("{file} has {faults}: nothing was changed")).into()
}
