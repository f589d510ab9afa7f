//! Examines the schedules of a queue. It finds lists of fires that are empty or were computed by
//! old time zone rules, timers that do not fire, schedules that are paused for long, and schedules
//! that have made no tick for long.

use crate::doctor::checkup::Checkup;
use crate::doctor::shell::dueq;
use crate::error::Error;
use crate::model::schedule::{ScheduleInfo, ScheduleState, tzdata_version};
use crate::model::stats::QueueStats;
use crate::partition::{Lists, Partition};

/// By how many milliseconds a fire must be late to be a finding, while workers are alive.
const LATE_MS: u64 = 60_000;
const DAY_MS: u64 = 86_400_000;
/// For how many milliseconds a schedule must be paused to be a remark.
const LONG_PAUSED_MS: u64 = 30 * DAY_MS;
/// How many fires without a tick make a schedule a finding, if they span at least `TICKLESS_MS` and
/// no earlier fire made a tick.
const TICKLESS_FIRES: u64 = 3;
const TICKLESS_MS: u64 = DAY_MS;
/// The most schedules that one finding names.
const MOST_NAMED: usize = 5;

/// The schedules that have one problem.
#[derive(Default)]
struct Named {
    names: Vec<String>,
    count: usize,
}

impl Named {
    fn add(&mut self, info: &ScheduleInfo) {
        if self.names.len() < MOST_NAMED {
            self.names.push(info.name.clone());
        }
        self.count += 1;
    }

    fn text(&self) -> String {
        let more = match self.count - self.names.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("{}{more}", self.names.join(", "))
    }

    /// A command of the program `dueq` for the first `most` of these schedules.
    fn command(&self, verb: &str, queue: &str, most: usize) -> String {
        let names = self.names.iter().take(most).map(String::as_bytes);
        let words: Vec<_> = [queue.as_bytes()].into_iter().chain(names).collect();
        dueq(verb, &words)
    }
}

/// The schedules of a queue, grouped by problem.
#[derive(Default)]
struct Problems {
    dry: Named,
    late: Named,
    tickless: Named,
    silent: Named,
    old: Named,
    paused: Named,
}

impl Problems {
    /// Sorts a schedule into its problems. `is_open` means that workers are alive and the queue is
    /// not paused. `own` is the version of this program's time zone rules.
    fn look(&mut self, info: &ScheduleInfo, is_open: bool, now_ms: u64, own: Option<&str>) {
        if info.state == ScheduleState::Dry {
            self.dry.add(info);
        }
        let due = info.next_ms.map(|ms| info.schedule.fire_at(ms).due_ms);
        if is_open && due.is_some_and(|due| due + LATE_MS < now_ms) {
            self.late.add(info);
        }
        // Redis does not store the time of the last tick, so this finds only schedules that never
        // made one.
        let without_tick = info.missed + info.overlapped;
        let passed_ms = info.last_ms.saturating_sub(info.since_ms);
        if matches!(info.state, ScheduleState::Active | ScheduleState::Dry)
            && info.made == 0
            && without_tick >= TICKLESS_FIRES
            && passed_ms >= TICKLESS_MS
        {
            self.tickless.add(info);
        }
        if info.tzdata.as_deref().is_some_and(|by| Some(by) < own)
            && info.state != ScheduleState::Ended
        {
            self.old.add(info);
        }
        // With a correct clock no fire is counted before its time. The minute allows for the calls
        // between the readings.
        if info.last_ms > now_ms + LATE_MS && !matches!(info.state, ScheduleState::Paused) {
            self.silent.add(info);
        }
        let first_paused_ms = info.first_paused_ms;
        if first_paused_ms.is_some_and(|first| first + LONG_PAUSED_MS < now_ms) {
            self.paused.add(info);
        }
    }
}

impl Checkup {
    /// Adds findings about the schedules of a queue. `now_ms` is the server's time.
    pub(super) async fn schedules(
        &mut self,
        partition: &Partition,
        stats: &QueueStats,
        now_ms: u64,
    ) -> Result<(), Error> {
        if stats.schedules == 0 {
            return Ok(());
        }
        self.fact("schedules", stats.schedules);
        self.fact("low_lists", stats.low_lists);
        self.fact("dry_lists", stats.dry_lists);
        let is_open = stats.nodes > 0 && !stats.paused && stats.closed_ms == 0;
        let (own, mut problems, mut cursor) = (tzdata_version(), Problems::default(), None);
        loop {
            let page = partition
                .schedules(cursor.as_ref(), 1_000, Lists::All)
                .await;
            let Some(page) = self.allowed("the schedules (schedules)", page)? else {
                return Ok(());
            };
            for info in &page.schedules {
                problems.look(info, is_open, now_ms, own);
            }
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        let queue = partition.queue_name();
        self.schedule_findings(queue, &problems);
        self.schedule_remarks(queue, &problems, own.unwrap_or_default());
        Ok(())
    }

    fn schedule_findings(&mut self, queue: &str, problems: &Problems) {
        let Problems {
            dry,
            late,
            tickless,
            silent,
            ..
        } = problems;
        if dry.count > 0 {
            let problem = format!(
                "{} crons have no more listed fires: {}",
                dry.count,
                dry.text()
            );
            self.wrong(
                "dry_schedules",
                queue,
                problem,
                "they make no ticks: no worker with the feature schedules leads the queue",
                dueq("schedule keep --once", &[queue.as_bytes()]),
            );
        }
        if late.count > 0 {
            let problem = format!(
                "{} schedules should have fired more than a minute ago, although workers are alive: {}",
                late.count,
                late.text()
            );
            self.wrong(
                "late_schedules",
                queue,
                problem,
                "they make no ticks: older messages wait before them, or their timers are lost",
                dueq("doctor --repair", &[queue.as_bytes()]),
            );
        }
        if silent.count > 0 {
            let problem = format!(
                "{} schedules fired last at a time that is ahead, and the clock was set back: {}",
                silent.count,
                silent.text()
            );
            self.wrong(
                "silent_schedules",
                queue,
                problem,
                "they make no ticks until that time, so that no fire makes two",
                silent.command("schedule recompute", queue, MOST_NAMED),
            );
        }
        if tickless.count > 0 {
            let problem = format!(
                "{} schedules have made no tick, although their fires passed for more than a day: {}",
                tickless.count,
                tickless.text()
            );
            let remedy = format!(
                "{} shows the counts; if fires are missed, start workers in time or declare a longer within; if they \
                 overlap, find the tick that waits or runs",
                tickless.command("schedule show", queue, 1)
            );
            self.wrong(
                "tickless_schedules",
                queue,
                problem,
                "their work is not done: every fire was missed, or overlapped with an earlier tick",
                remedy,
            );
        }
    }

    /// Adds remarks about schedules. `own` is the version of this program's time zone rules.
    fn schedule_remarks(&mut self, queue: &str, problems: &Problems, own: &str) {
        let (old, paused) = (&problems.old, &problems.paused);
        if old.count > 0 {
            let problem = format!(
                "the fires of {} crons were listed by older rules of the time zones than {own}, which this program \
                 has: {}",
                old.count,
                old.text()
            );
            self.remark(
                "old_tzdata",
                queue,
                problem,
                "a clock change may shift them, if the rules of their zones have changed",
                dueq("schedule keep --once", &[queue.as_bytes()]),
            );
        }
        if paused.count > 0 {
            let problem = format!(
                "{} schedules have been paused for more than 30 days: {}",
                paused.count,
                paused.text()
            );
            let (resume, remove) = (
                paused.command("schedule resume", queue, MOST_NAMED),
                paused.command("schedule rm", queue, MOST_NAMED),
            );
            self.remark(
                "paused_schedules",
                queue,
                problem,
                "they make no ticks until they are resumed",
                format!("{resume}, or {remove}"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_problem_of_schedules_has_its_code() {
        let named = |count| Named {
            names: vec!["report".to_owned(); count],
            count: 2 * count,
        };
        let codes = |each| {
            let problems = Problems {
                dry: named(each),
                late: named(each),
                tickless: named(each),
                silent: named(each),
                old: named(each),
                paused: named(each),
            };
            let mut checkup = Checkup::default();
            checkup.schedule_findings("q", &problems);
            checkup.schedule_remarks("q", &problems, "2026a");
            let codes = |all: &[crate::doctor::Finding]| -> Vec<_> {
                all.iter().map(|finding| finding.code).collect()
            };
            (codes(&checkup.findings), codes(&checkup.remarks))
        };
        assert_eq!(codes(0), (vec![], vec![]));
        let findings = vec![
            "dry_schedules",
            "late_schedules",
            "silent_schedules",
            "tickless_schedules",
        ];
        assert_eq!(codes(1), (findings, vec!["old_tzdata", "paused_schedules"]));
        assert_eq!(named(2).text(), "report, report and 2 more");
        assert_eq!(
            named(2).command("schedule rm", "a b", 5),
            "dueq schedule rm 'a b' report report"
        );
    }
}
