//! `dueq schedule next`: the next fires of a schedule, or of a rule without a server.

use std::time::{Duration, SystemTime};

use clap::Args;
use dueq::schedules::{Fire, Schedule, ScheduleState};
use dueq_input::{ClockChanges, Wording};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::commands::schedule::{absent, list, table};
use crate::output::{Outcome, Usage};
use crate::{Common, output, time};

#[derive(Args)]
#[command(after_help = "\
Prints a line for each fire: the local time, UTC, with a jitter the time at which the tick is due,
and what a clock change has to do with it:
  02:30 does not exist that day: 03:00      a fixed time moves to the end of the gap
  02:30 occurs twice that day: first pass   a fixed time fires once; a * or / in the hours, minutes or
                                            seconds fires in both passes

Of a schedule it shows the fires as the queue makes them. With --cron or --every it asks no server:
try a pattern before you apply it. --from shows the fires after another time than now.

Examples:
  dueq schedule next reports nightly -n 5
  dueq schedule next --cron '30 2 * * *' --zone Europe/Paris --from 2027-03-27T00:00:00+01:00 -n 3")]
pub(super) struct Next {
    /// The queue, unless --cron or --every
    #[arg(required_unless_present_any = ["cron", "every"], conflicts_with_all = ["cron", "every"])]
    queue: Option<String>,
    /// The schedule
    #[arg(required_unless_present_any = ["cron", "every"])]
    name: Option<String>,
    /// How many fires: 1 to 100000
    #[arg(short, long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    number: u32,
    /// The fires of this pattern in --zone: '0 2 * * *'
    #[arg(
        long,
        value_name = "PATTERN",
        requires = "zone",
        conflicts_with = "every"
    )]
    cron: Option<String>,
    /// The fires of this interval: 15m
    #[arg(long, value_name = "TIME", value_parser = time::period)]
    every: Option<Duration>,
    /// The time zone of --cron. Of any other rule: the zone in which local times are shown
    #[arg(long, value_name = "ZONE")]
    zone: Option<String>,
    /// The fires after this moment [default: now]
    #[arg(long, value_name = "MOMENT")]
    from: Option<String>,
}

/// Fires, and the time zone in which they are shown.
struct Shown {
    fires: Vec<Fire>,
    /// The fires are the first ones after this time.
    after: Timestamp,
    clock: ClockChanges,
}

impl Next {
    pub(super) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        let zone = self
            .zone
            .as_deref()
            .map(time::zone)
            .transpose()
            .map_err(Usage::from)?;
        let from = self.from.as_ref().map(|text| {
            let moment = time::moment(text, zone.as_ref(), Timestamp::now(), Wording::Flags);
            let moment = moment.map_err(Usage::from)?;
            Timestamp::try_from(moment).map_err(|error| Usage(error.to_string()))
        });
        let from = from.transpose()?;
        let (Some(queue), Some(name)) = (&self.queue, &self.name) else {
            self.preview(zone, from)?.print(common)?;
            return Ok(Outcome::Done);
        };
        let (client, queue) = common.client_and_queue_to_read(queue).await?;
        let Some(info) = queue.schedule(name).get().await? else {
            return absent(common, &client, &queue, name).await;
        };
        let count = self.count();
        let fires = match from {
            Some(from) => info.schedule.fires(unix_ms(from))?.take(count).collect(),
            None => info.next_fires(count)?,
        };
        if fires.is_empty() {
            common.remark(match info.state {
                ScheduleState::Paused => {
                    "the schedule is paused: it has no next fire until it is resumed"
                }
                _ => "the schedule has ended: it has no more fires",
            });
        }
        let own = info
            .zone
            .as_deref()
            .map(time::zone)
            .transpose()
            .map_err(Usage::from)?;
        let pattern = own.as_ref().map(|_| info.pattern.as_str());
        let clock = ClockChanges::new(own.or(zone).unwrap_or(TimeZone::UTC), pattern);
        let last = i64::try_from(info.last_ms).ok();
        let last = last.and_then(|ms| Timestamp::from_millisecond(ms).ok());
        let after = from.or(last).unwrap_or_else(Timestamp::now);
        Shown {
            fires,
            after,
            clock,
        }
        .print(common)?;
        Ok(Outcome::Done)
    }

    fn count(&self) -> usize {
        usize::try_from(self.number).unwrap_or(usize::MAX)
    }

    /// The fires of --cron or --every.
    fn preview(&self, zone: Option<TimeZone>, from: Option<Timestamp>) -> anyhow::Result<Shown> {
        let after = from.unwrap_or_else(Timestamp::now);
        let schedule = match (&self.cron, self.every) {
            (Some(pattern), _) => {
                Schedule::cron(pattern)?.zone(self.zone.as_deref().unwrap_or_default())
            }
            (None, every) => Schedule::every(every.unwrap_or_default()),
        };
        let schedule = schedule.name("preview");
        schedule.check(SystemTime::from(after))?;
        Ok(Shown {
            fires: schedule.fires(unix_ms(after))?.take(self.count()).collect(),
            after,
            clock: ClockChanges::new(zone.unwrap_or(TimeZone::UTC), self.cron.as_deref()),
        })
    }
}

fn unix_ms(time: Timestamp) -> u64 {
    u64::try_from(time.as_millisecond()).unwrap_or(0)
}

impl Shown {
    fn print(&self, common: &Common) -> anyhow::Result<()> {
        let mut table = table();
        let mut before = self.after;
        let has_jitter = self.fires.iter().any(|fire| fire.due_ms != fire.nominal_ms);
        for fire in &self.fires {
            let time = Timestamp::from_millisecond(i64::try_from(fire.nominal_ms)?)?;
            let local = time.to_zoned(self.clock.zone().clone());
            let remark = self.clock.remark(before, time);
            before = time;
            if common.json {
                output::json_line(&serde_json::json!({
                    "nominal_ms": fire.nominal_ms,
                    "due_ms": fire.due_ms,
                    "local": local.to_string(),
                    "utc": time.to_string(),
                    "remark": Some(remark).filter(|remark| !remark.is_empty()),
                }))?;
                continue;
            }
            let mut row = vec![
                local.strftime("%a %Y-%m-%d %H:%M:%S%.f %:z").to_string(),
                time.to_string(),
            ];
            if has_jitter {
                let delay = list::length(fire.due_ms.saturating_sub(fire.nominal_ms));
                row.push(format!("due +{delay}"));
            }
            row.push(remark);
            table.add_row(row);
        }
        if !common.json && !self.fires.is_empty() {
            output::line(&table.trim_fmt())?;
        }
        Ok(())
    }
}
