//! Examines the schedules of a queue: lists that are dry or by old rules, timers that do not fire.

use crate::doctor::checkup::Checkup;
use crate::doctor::shell::dueq;
use crate::error::Error;
use crate::model::schedule::{ScheduleInfo, ScheduleState, tzdata_version};
use crate::model::stats::Stats;
use crate::partition::{Lists, Partition};

/// A fire that is later than this although workers are alive is a finding.
const LATE_MS: u64 = 60_000;
/// How many schedules a finding names.
const MOST_NAMED: usize = 5;

/// The schedules with one problem.
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
}

impl Checkup {
    /// Adds findings about the schedules of a queue. `now_ms` is the server's time.
    pub(super) async fn schedules(
        &mut self,
        partition: &Partition,
        stats: &Stats,
        now_ms: u64,
    ) -> Result<(), Error> {
        if stats.schedules == 0 {
            return Ok(());
        }
        self.fact("schedules", stats.schedules);
        self.fact("low_lists", stats.low_lists);
        self.fact("dry_lists", stats.dry_lists);
        let is_open = stats.nodes > 0 && !stats.paused && stats.closed_ms == 0;
        let (mut dry, mut late, mut old) = (Named::default(), Named::default(), Named::default());
        let own = tzdata_version();
        let mut cursor = None;
        loop {
            let page = partition
                .schedules(cursor.as_ref(), 1_000, Lists::All)
                .await;
            let Some(page) = self.allowed("the schedules (schedules)", page)? else {
                return Ok(());
            };
            for info in &page.schedules {
                if info.state == ScheduleState::Dry {
                    dry.add(info);
                }
                let due = info.next_ms.map(|ms| info.schedule.fire_at(ms).due_ms);
                if is_open && due.is_some_and(|due| due + LATE_MS < now_ms) {
                    late.add(info);
                }
                if info.tzdata.is_some() && info.tzdata < own && info.state != ScheduleState::Ended
                {
                    old.add(info);
                }
            }
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        let queue = partition.queue_name();
        self.schedule_findings(queue, &dry, &late, &old, own.as_deref().unwrap_or_default());
        Ok(())
    }

    fn schedule_findings(
        &mut self,
        queue: &str,
        dry: &Named,
        late: &Named,
        old: &Named,
        own: &str,
    ) {
        let keep = dueq("schedule keep --once", &[queue.as_bytes()]);
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
                keep.clone(),
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
                keep,
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
        let codes = |dry, late, old| {
            let mut checkup = Checkup::default();
            checkup.schedule_findings("q", &named(dry), &named(late), &named(old), "2026a");
            let findings = checkup.findings.iter().chain(&checkup.remarks);
            findings.map(|finding| finding.code).collect::<Vec<_>>()
        };
        assert_eq!(codes(0, 0, 0), [""; 0]);
        assert_eq!(
            codes(1, 1, 1),
            ["dry_schedules", "late_schedules", "old_tzdata"]
        );
        assert_eq!(named(2).text(), "report, report and 2 more");
    }
}
