//! How many messages and ticks of schedules a queue has in each slot of the next week, and its
//! schedules.

use dueq::inspect::PartialRead;
use dueq::schedules::ScheduleInfo;
use dueq::{Error, Queue};

use crate::wire::schedules::Schedule;

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;
/// Until when slots of which length follow each other. All begin at multiples of their length, so
/// that the slots of all queues can be added up; the first slot of a queue begins now. They are 57
/// times; one call takes 60.
const SLOTS: [(u64, u64); 3] = [
    (HOUR_MS, 5 * MINUTE_MS),
    (DAY_MS, HOUR_MS),
    (7 * DAY_MS, 8 * HOUR_MS),
];
/// The most schedules of a queue that are kept and whose ticks are counted, and the most ticks of one: one each minute
/// for a week.
pub(crate) const MAX_SCHEDULES: usize = 100;
const MAX_TICKS: usize = 10_080;

/// What falls due within a week, and the schedules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) slots: Vec<DueSlot>,
    /// The first ones by set and name.
    pub(crate) schedules: Vec<Schedule>,
}

/// What falls due in a slot of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DueSlot {
    pub(crate) from_ms: u64,
    pub(crate) before_ms: u64,
    pub(crate) messages: u64,
    /// Ticks of schedules after the next one, which is a message already.
    pub(crate) ticks: u64,
}

impl Due {
    /// Reads what falls due from `now_ms` on. Returns it with Redis's time.
    pub(super) async fn read(
        queue: &Queue,
        now_ms: u64,
        has_schedules: bool,
    ) -> Result<(Self, u64), Error> {
        let times = times(now_ms);
        let dues = whole(queue.dues_reached(&times).await?)?;
        let (ticks, schedules) = match has_schedules {
            true => {
                let page = queue.list_schedules(None, MAX_SCHEDULES).await?;
                let times = times.clone();
                let schedules = page.schedules.iter().map(Schedule::new).collect();
                let counted = move || ticks(&page.schedules, &times);
                // Thousands of fires of a cron take milliseconds.
                let counted = tokio::task::spawn_blocking(counted).await;
                (counted.unwrap_or_default(), schedules)
            }
            false => Default::default(),
        };
        // The first count is of messages that are due already, the last one of those after the week.
        let counts = dues.counts.iter().copied().skip(1);
        let ticks = ticks.into_iter().chain(std::iter::repeat(0));
        let slots = times.windows(2).zip(counts.zip(ticks));
        let slots = slots.map(|(bounds, (messages, ticks))| DueSlot {
            from_ms: bounds[0],
            before_ms: bounds[1],
            messages,
            ticks,
        });
        Ok((
            Self {
                slots: slots.collect(),
                schedules,
            },
            dues.now_ms,
        ))
    }

    /// The counts of the next hour, each 5 minutes: the first and the last one are of a part of them.
    pub(crate) fn hour(&self) -> Vec<u64> {
        let begin = self.slots.first().map_or(0, |slot| slot.from_ms);
        let slots = self.slots.iter();
        let hour = slots.take_while(|slot| slot.from_ms < begin + HOUR_MS);
        hour.map(|slot| slot.messages + slot.ticks).collect()
    }
}

/// The value, if every partition was read. Without some partitions it would look complete.
pub(super) fn whole<T>(reached: PartialRead<T>) -> Result<T, Error> {
    let first = reached.unread.into_iter().next();
    first.map_or(Ok(reached.value), |unread| Err(unread.error))
}

/// Now, and the bounds between the slots, up to the end of the week.
fn times(now_ms: u64) -> Vec<u64> {
    let mut times = vec![now_ms];
    for (length, step) in SLOTS {
        let end = now_ms.saturating_add(length);
        let first = times.last().map_or(0, |last| last / step + 1) * step;
        let bounds = (0..).map(|number| first + number * step);
        times.extend(bounds.take_while(|time| *time < end));
        times.push(end);
    }
    times
}

/// The number of ticks after the next one in each slot.
fn ticks(schedules: &[ScheduleInfo], times: &[u64]) -> Vec<u64> {
    let mut counts = vec![0; times.len()];
    let end = times.last().copied().unwrap_or(0);
    for schedule in schedules {
        let Some(next_ms) = schedule.next_ms else {
            continue;
        };
        // Fires that cannot be computed are missing: the page of the queue says why.
        let fires = schedule.next_fires(MAX_TICKS).unwrap_or_default();
        let later = fires.iter().filter(|fire| fire.nominal_ms > next_ms);
        for fire in later.take_while(|fire| fire.nominal_ms < end) {
            let slot = times.partition_point(|time| *time <= fire.due_ms);
            if let Some(count) = slot.checked_sub(1).and_then(|slot| counts.get_mut(slot)) {
                *count += 1;
            }
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_a_week_ascend_and_fit_into_one_call() {
        for now_ms in [
            0,
            1,
            1_796_299_200_000,
            1_796_299_199_999,
            1_796_299_321_123,
        ] {
            let times = times(now_ms);
            assert!(times.len() <= 60, "{}", times.len());
            assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "{times:?}");
            for end in [HOUR_MS, DAY_MS, 7 * DAY_MS] {
                assert!(times.contains(&(now_ms + end)));
            }
            // Each bar of a chart begins with a slot.
            for (length, step) in SLOTS {
                let next = (now_ms / step + 1) * step;
                assert!(
                    next >= now_ms + length || times.contains(&next),
                    "{now_ms} {step}"
                );
            }
        }
    }
}
