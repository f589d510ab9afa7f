//! `dueq schedule ls` and `show`.

use std::io;
use std::time::Duration;

use clap::Args;
use comfy_table::CellAlignment;
use dueq::Queue;
use dueq::schedules::ScheduleInfo;
use jiff::SignedDuration;
use serde_json::Value;

use crate::commands::schedule::{absent, table};
use crate::output::Outcome;
use crate::{Common, output};

/// The most schedules that one call lists.
const PAGE: usize = 64;

#[derive(Args)]
#[command(after_help = "\
Prints a line for each schedule, in the order of sets and names. The state is active, paused, ended,
or dry: a cron without listed fires, which fires again after `dueq schedule keep`.

made, missed, overlapped and paused count the fires since the schedule was created or changed.

Examples:
  dueq schedule ls reports
  dueq schedule ls reports --set billing --json | jq 'select(.state != \"active\") | .name'")]
pub(super) struct Ls {
    /// The queue
    queue: String,
    /// Only the schedules of this set
    #[arg(long, value_name = "NAME")]
    set: Option<String>,
}

impl Ls {
    pub(super) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        let queue = common.existing_queue_to_read(&self.queue).await?;
        let mut infos = all(&queue).await?;
        infos.retain(|info| self.set.as_ref().is_none_or(|set| info.set == *set));
        if common.json {
            for info in &infos {
                output::json_line(&object(info))?;
            }
            return Ok(Outcome::Done);
        }
        print(&infos)?;
        Ok(Outcome::Done)
    }
}

async fn all(queue: &Queue) -> Result<Vec<ScheduleInfo>, dueq::Error> {
    let (mut infos, mut cursor) = (Vec::new(), None);
    loop {
        let page = queue.list_schedules(cursor.as_ref(), PAGE).await?;
        infos.extend(page.schedules);
        cursor = page.next;
        if cursor.is_none() {
            return Ok(infos);
        }
    }
}

fn print(infos: &[ScheduleInfo]) -> io::Result<()> {
    let mut table = table();
    table.set_header([
        "schedule",
        "set",
        "state",
        "rule",
        "next fire",
        "made",
        "missed",
        "overlapped",
        "paused",
    ]);
    for info in infos {
        let mut row = vec![
            info.name.clone(),
            info.set.clone(),
            info.state.to_string(),
            output::visible(shown(info).as_bytes()),
            info.next_ms.map_or("-".to_owned(), output::moment),
        ];
        let counts = [info.made, info.missed, info.overlapped, info.paused];
        row.extend(counts.map(|count| count.to_string()));
        table.add_row(row);
    }
    for index in 5..9 {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    output::line(&table.trim_fmt())
}

fn object(info: &ScheduleInfo) -> Value {
    serde_json::json!({
        "name": info.name,
        "set": info.set,
        "state": info.state.as_str(),
        "every_ms": every_ms(info),
        "cron": Some(&info.pattern).filter(|pattern| !pattern.is_empty()),
        "zone": info.zone,
        "spec": info.spec,
        "next_ms": info.next_ms,
        "last_ms": info.last_ms,
        "since_ms": info.since_ms,
        "made": info.made,
        "missed": info.missed,
        "overlapped": info.overlapped,
        "paused": info.paused,
        "triggered": info.triggered,
        "listed": info.listed,
        "listed_until_ms": info.listed_until_ms,
        "is_list_final": info.is_list_final,
        "tzdata": info.tzdata,
    })
}

#[derive(Args)]
#[command(after_help = "\
Prints the rule of a schedule, its policies, its next fire, its counts, and the payload of its ticks.
If there is no such schedule, the command prints absent, and the exit code is 1.

Examples:
  dueq schedule show reports nightly
  dueq schedule show reports nightly --json | jq .next_ms")]
pub(super) struct Show {
    /// The queue
    queue: String,
    /// The schedule
    name: String,
}

impl Show {
    pub(super) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        let (client, queue) = common.client_and_queue_to_read(&self.queue).await?;
        let Some(info) = queue.schedule(&self.name).get().await? else {
            return absent(common, &client, &queue, &self.name).await;
        };
        if common.json {
            let mut object = object(&info);
            if let Value::Object(fields) = &mut object {
                fields.insert("options".to_owned(), info.options().into());
                output::payload_fields(fields, info.payload());
            }
            output::json_line(&object)?;
            return Ok(Outcome::Done);
        }
        let time = |ms: u64| format!("{} ({ms})", output::moment(ms));
        let mut table = table();
        for (name, value) in [
            ("name", info.name.clone()),
            ("set", info.set.clone()),
            ("state", info.state.to_string()),
            ("rule", output::visible(shown(&info).as_bytes())),
            ("next fire", info.next_ms.map_or("-".to_owned(), time)),
            ("counted until", time(info.last_ms)),
        ] {
            table.add_row([name, &value]);
        }
        let of_rule = ["set", "every", "zone"];
        for (name, value) in words(&info.spec).filter(|(name, _)| !of_rule.contains(name)) {
            table.add_row([name, &policy(name, value)]);
        }
        let options = info.options();
        for (name, value) in words(&options) {
            let value = value
                .strip_prefix('+')
                .map_or_else(|| value.to_owned(), length_of);
            table.add_row([name, &value]);
        }
        for (name, count) in [
            ("ticks made", info.made),
            ("fires missed", info.missed),
            ("fires overlapped", info.overlapped),
            ("fires paused", info.paused),
            ("ticks by hand", info.triggered),
        ] {
            table.add_row([name, &count.to_string()]);
        }
        if let Some(tzdata) = &info.tzdata {
            let until = info.listed_until_ms.map_or("-".to_owned(), output::moment);
            table.add_row(["listed", &format!("{} fires, until {until}", info.listed)]);
            table.add_row(["tzdata", tzdata]);
        }
        table.add_row(["payload", &output::visible(info.payload())]);
        output::line(&table.trim_fmt())?;
        Ok(Outcome::Done)
    }
}

/// A word of the schedule's spec, in words for people.
fn policy(name: &str, value: &str) -> String {
    match name {
        "within" | "jitter" => length_of(value),
        "anchor" | "start" | "end" => value
            .parse()
            .map_or_else(|_| value.to_owned(), output::moment),
        _ => output::visible(value.as_bytes()),
    }
}

fn length_of(ms: &str) -> String {
    ms.parse().map_or_else(|_| ms.to_owned(), length)
}

/// The words of a schedule's spec: names and values.
pub(super) fn words(spec: &str) -> impl Iterator<Item = (&str, &str)> {
    spec.split(' ').filter_map(|word| word.split_once('='))
}

/// The time of `every` in milliseconds; `None` for a cron.
pub(super) fn every_ms(info: &ScheduleInfo) -> Option<u64> {
    let every = words(&info.spec).find(|(name, _)| *name == "every")?;
    every.1.parse().ok()
}

/// `every 15m`, or the pattern and the zone of a cron.
pub(super) fn shown(info: &ScheduleInfo) -> String {
    match (every_ms(info), &info.zone) {
        (Some(ms), _) => format!("every {}", length(ms)),
        (None, Some(zone)) => format!("{} in {zone}", info.pattern),
        (None, None) => info.pattern.clone(),
    }
}

/// A length of time in the notation of the files: `15m`, `1h 30m`, `50ms`.
pub(super) fn length(ms: u64) -> String {
    let length = SignedDuration::try_from(Duration::from_millis(ms));
    length.map_or_else(|_| format!("{ms}ms"), |length| format!("{length:#}"))
}
