//! `dueq doctor`: the problems of a server and its queues, their consequences and their remedies.

use std::io;
use std::time::{Duration, SystemTime};

use clap::Args;
use dueq::admin::{Checkup, Finding};
use dueq::{Client, ErrorKind};

use crate::output::Outcome;
use crate::{Common, failure, output};

/// The most by which the server's clock may differ from this machine's.
const OFFSET: Duration = Duration::from_secs(1);

#[derive(Args)]
#[command(after_help = "\
Checks the server: version, eviction, persistence, replicas, memory, clients, buffers, round trip,
clock, scripts and functions. Checks each queue: whether due messages are delivered, and if not,
why; whether each id is in one state, with its payload, claim and attributes; and its keys, limits,
encodings and wake-up list. Each finding comes with its consequence and its remedy. The checks run
in small steps, so that workers and producers can continue.

--repair repairs the queues, never the server. It moves messages without a state to the dead set, so
that none is lost and none runs twice; it removes messages without a payload. docs/protocol/verbs
describes the repair of each finding.

Exit code 0 without findings. Exit code 1 with findings, repaired or not, or if a queue could not be
read. Remarks, such as on dead messages, and checks that this user may not make are no findings.

Examples:
  dueq doctor
  dueq doctor orders --repair
  dueq doctor --json | jq -r 'select(.finding) | .remedy'")]
pub(crate) struct Doctor {
    /// The queue [default: all queues]
    queue: Option<String>,
    /// Repair the findings that can be repaired
    #[arg(long)]
    repair: bool,
}

/// Prints findings, and counts them.
struct Report<'a> {
    common: &'a Common,
    found: u64,
    repaired: u64,
    remarks: u64,
    unchecked: u64,
}

impl Doctor {
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        let client = Client::connect_with(common.url(), &common.options()?.accept_unfit()).await?;
        let mut report = Report {
            common,
            found: 0,
            repaired: 0,
            remarks: 0,
            unchecked: 0,
        };
        let mut server = client.examine().await?;
        if let Ok(time) = client.server_time().await {
            let here = SystemTime::now()
                .checked_sub(time.at.elapsed())
                .unwrap_or(SystemTime::UNIX_EPOCH);
            let here_us = here
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap_or_default()
                .as_micros();
            let offset_us = i128::from(time.unix_us) - i128::try_from(here_us).unwrap_or(0);
            server
                .facts
                .push(("clock_offset_us", offset_us.to_string()));
            report.clock(offset_us)?;
        }
        report.checkup(None, &server)?;
        let mut unread = false;
        for name in self.names(&client, &mut report).await? {
            let checkup = match client.queue(&name)?.examine(self.repair).await {
                Ok(checkup) => checkup,
                Err(error) => {
                    report.unchecked(
                        Some(&name),
                        "the queue",
                        &common.remedy(&failure::with_queue(&error.to_string(), Some(&name))),
                    )?;
                    unread = true;
                    continue;
                }
            };
            report.checkup(Some(&name), &checkup)?;
            let absent = checkup.facts.contains(&("exists", "false".to_owned()))
                && checkup.findings.is_empty();
            if absent && self.queue.is_some() {
                report.line(
                    Some(&name),
                    &Line {
                        code: "absent",
                        subject: name.as_bytes(),
                        problem: "there is no such queue",
                        consequence: "the first push creates it; or the name is mistyped",
                        remedy: "dueq queues",
                        repaired: false,
                    },
                )?;
            }
        }
        Ok(report.end()?.and(Outcome::done_if(!unread)))
    }

    async fn names(&self, client: &Client, report: &mut Report<'_>) -> anyhow::Result<Vec<String>> {
        if let Some(name) = &self.queue {
            return Ok(vec![name.clone()]);
        }
        match client.queues_reached().await {
            // If a master is unreachable, the findings about the servers name it already.
            Ok(names) => Ok(names.value),
            Err(error) if error.kind() == ErrorKind::Denied || error.is_retryable() => {
                report.unchecked(None, "the list of queues: name a queue", &error.to_string())?;
                Ok(Vec::new())
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// A finding or a remark, of the library or of this program.
struct Line<'a> {
    code: &'a str,
    subject: &'a [u8],
    problem: &'a str,
    consequence: &'a str,
    remedy: &'a str,
    repaired: bool,
}

impl<'a> From<&'a Finding> for Line<'a> {
    fn from(finding: &'a Finding) -> Self {
        Self {
            code: finding.code,
            subject: &finding.subject,
            problem: &finding.problem,
            consequence: finding.consequence,
            remedy: &finding.remedy,
            repaired: finding.repaired,
        }
    }
}

/// The JSON value of a fact.
fn number_or_text(fact: &str) -> serde_json::Value {
    match fact {
        "true" | "false" => (fact == "true").into(),
        _ => fact.parse::<i64>().map_or_else(|_| fact.into(), Into::into),
    }
}

/// Whether the server's clock is too far from this machine's.
fn is_off(offset_us: i128) -> bool {
    offset_us.unsigned_abs() > OFFSET.as_micros()
}

impl Report<'_> {
    fn clock(&mut self, offset_us: i128) -> io::Result<()> {
        if !is_off(offset_us) {
            return Ok(());
        }
        self.line(None, &Line {
            code: "clock",
            subject: b"clock",
            problem: &format!("the server's clock differs from this machine's by {} ms", offset_us / 1_000),
            consequence: "due times are times of the server's clock: a message with --at comes that much early or late by this machine's",
            remedy: "chronyc tracking    # on both machines",
            repaired: false,
        })
    }

    fn checkup(&mut self, queue: Option<&str>, checkup: &Checkup) -> io::Result<()> {
        if self.common.json {
            let mut object: serde_json::Map<_, _> = checkup
                .facts
                .iter()
                .map(|(name, value)| ((*name).to_owned(), number_or_text(value)))
                .collect();
            object.insert("queue".to_owned(), queue.into());
            output::json_line(&serde_json::json!({ "facts": object }))?;
        } else {
            let facts: Vec<String> = checkup
                .facts
                .iter()
                .map(|(name, value)| format!("{name} {value}"))
                .collect();
            let of = queue.map_or("server".to_owned(), |name| {
                format!("queue {}", output::visible(name.as_bytes()))
            });
            output::line(&format!(
                "{of}: {}",
                output::visible(facts.join(", ").as_bytes())
            ))?;
        }
        for finding in &checkup.findings {
            self.line(queue, &finding.into())?;
        }
        for remark in &checkup.remarks {
            self.remark(queue, &remark.into())?;
        }
        if checkup.more > 0 {
            self.found += checkup.more;
            self.repaired += checkup.more_repaired;
            if self.common.json {
                let (more, repaired) = (checkup.more, checkup.more_repaired);
                output::json_line(
                    &serde_json::json!({ "queue": queue, "more": more, "repaired": repaired }),
                )?;
            } else {
                output::line(&format!(
                    "  and {} more, {} repaired",
                    checkup.more, checkup.more_repaired
                ))?;
            }
        }
        for unchecked in &checkup.unchecked {
            self.unchecked(queue, unchecked.what, &unchecked.why)?;
        }
        Ok(())
    }

    fn line(&mut self, queue: Option<&str>, line: &Line<'_>) -> io::Result<()> {
        self.found += 1;
        self.repaired += u64::from(line.repaired);
        self.print(queue, "finding", line)
    }

    fn remark(&mut self, queue: Option<&str>, line: &Line<'_>) -> io::Result<()> {
        self.remarks += 1;
        self.print(queue, "remark", line)
    }

    fn print(&self, queue: Option<&str>, kind: &str, line: &Line<'_>) -> io::Result<()> {
        let remedy = self.common.remedy(line.remedy);
        if self.common.json {
            let mut object = output::id_fields(line.subject);
            object.insert("queue".to_owned(), queue.into());
            object.insert(kind.to_owned(), line.code.into());
            object.insert("problem".to_owned(), line.problem.into());
            object.insert("consequence".to_owned(), line.consequence.into());
            object.insert("remedy".to_owned(), remedy.into());
            object.insert("repaired".to_owned(), line.repaired.into());
            return output::json_line(&object.into());
        }
        let visible = |text: &str| output::visible(text.as_bytes());
        let kind = if kind == "remark" { "remark: " } else { "" };
        let repaired = if line.repaired { "repaired: " } else { "" };
        let (subject, problem) = (output::visible(line.subject), visible(line.problem));
        output::line(&format!(
            "  {kind}{} {subject}: {repaired}{problem}",
            line.code
        ))?;
        output::line(&format!("    so   {}", visible(line.consequence)))?;
        if remedy.is_empty() {
            Ok(())
        } else {
            output::line(&format!("    run  {}", visible(&remedy)))
        }
    }

    fn unchecked(&mut self, queue: Option<&str>, what: &str, why: &str) -> io::Result<()> {
        self.unchecked += 1;
        if self.common.json {
            return output::json_line(
                &serde_json::json!({ "queue": queue, "unchecked": what, "why": why }),
            );
        }
        output::line(&format!(
            "  not checked: {what}: {}",
            output::visible(why.as_bytes())
        ))
    }

    fn end(self) -> anyhow::Result<Outcome> {
        let Self {
            common,
            found,
            repaired,
            remarks,
            unchecked,
        } = self;
        if common.json {
            let object = serde_json::json!({
                "found": found, "repaired": repaired, "remarks": remarks, "not_checked": unchecked,
            });
            output::json_line(&object)?;
        } else {
            let remark = if remarks == 1 { "remark" } else { "remarks" };
            let all = [(remarks, remark), (unchecked, "not checked")]
                .map(|(count, what)| {
                    if count == 0 {
                        String::new()
                    } else {
                        format!(", {count} {what}")
                    }
                })
                .concat();
            output::line(&match found {
                0 => format!("nothing found{all}"),
                _ => format!("{found} found, {repaired} repaired{all}"),
            })?;
        }
        Ok(Outcome::done_if(found == 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_offset_above_a_second_is_a_finding() {
        for (offset_us, found) in [
            (0, false),
            (1_000_000, false),
            (-1_000_000, false),
            (1_000_001, true),
            (-3_600_000_000, true),
        ] {
            assert_eq!(is_off(offset_us), found, "{offset_us}");
        }
    }
}
