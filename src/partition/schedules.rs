//! Calls about the schedules of a queue, and the refill of their lists of fires.

use std::collections::HashSet;

use crate::error::Error;
use crate::model::schedule::{
    FireList, RefillOutcome, ScheduleCursor, ScheduleInfo, SchedulePage, ScheduleState,
    listed_fires, tzdata_version,
};
use crate::partition::Partition;
use crate::protocol::counts::{LIST, REFILL};
use crate::protocol::results::schedules::{self, ListRefilled};
use crate::protocol::verbs::Verb;
use crate::server::patience::Repeat;
use crate::telemetry::events;
use crate::telemetry::metrics::Counter;

/// How many schedules a refill reads in one call.
const PAGE: usize = 64;

/// How many fires a refilled list has.
pub(crate) fn list_length() -> usize {
    #[cfg(feature = "harness")]
    if let Some(length) = crate::server::harness::list_length() {
        return length;
    }
    LIST
}

/// A list with at least this many fires needs no refill.
fn full_enough() -> u64 {
    let length = list_length();
    (length - length / 8) as u64
}

/// Which lists a refill examines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lists {
    /// The lists that the queue counts as low.
    Low,
    /// All lists, to find those that older time zone rules made.
    All,
}

impl Partition {
    /// Reads a page of up to `limit` schedules.
    pub(crate) async fn schedules(
        &self,
        cursor: Option<&ScheduleCursor>,
        limit: usize,
        lists: Lists,
    ) -> Result<SchedulePage, Error> {
        let cursor = cursor.map_or(&[][..], |cursor| &cursor.0);
        let limit = limit.to_string();
        let low: &[u8] = if lists == Lists::Low { b"low" } else { b"" };
        let args = [cursor, limit.as_bytes(), low];
        let reply = self.call(Verb::Schedules, &args, Repeat::Harmless).await;
        let mut reply = reply.map_err(Error::of_read)?;
        schedules::page(&mut reply.body)
    }

    /// Reads one schedule, with its payload and its list of fires; `None` if there is none of this
    /// name.
    pub(crate) async fn schedule(&self, name: &str) -> Result<Option<ScheduleInfo>, Error> {
        let args = [name.as_bytes()];
        let reply = self.call(Verb::Schedules, &args, Repeat::Harmless).await;
        let mut reply = reply.map_err(Error::of_read)?;
        Ok(schedules::page(&mut reply.body)?.schedules.pop())
    }

    /// Refills the lists of crons. `warned` has the schedules whose empty list was logged already.
    pub(crate) async fn refill(
        &self,
        lists: Lists,
        warned: &mut HashSet<String>,
    ) -> Result<RefillOutcome, Error> {
        let mut refilled = RefillOutcome::default();
        let mut cursor = None;
        loop {
            let page = self.schedules(cursor.as_ref(), PAGE, lists).await?;
            for info in &page.schedules {
                if info.state != ScheduleState::Dry {
                    warned.remove(&info.name);
                } else {
                    refilled.dry.push(info.name.clone());
                    if warned.insert(info.name.clone()) {
                        self.meters().add(Counter::FoundDry);
                        events::schedule_dry(self.queue_name(), &info.name);
                    }
                }
            }
            let has_list =
                |info: &ScheduleInfo| info.schedule.is_cron() && info.state != ScheduleState::Ended;
            let mut crons = page.schedules;
            crons.retain(has_list);
            for some in crons.chunks(REFILL) {
                self.refill_some(some, &mut refilled).await?;
            }
            cursor = page.next;
            if cursor.is_none() {
                return Ok(refilled);
            }
        }
    }

    async fn refill_some(
        &self,
        crons: &[ScheduleInfo],
        refilled: &mut RefillOutcome,
    ) -> Result<(), Error> {
        let mut args: Vec<Vec<u8>> = Vec::new();
        let mut names = Vec::new();
        for info in crons {
            let (name, version) = (info.name.clone(), info.version);
            let last = info.listed_until_ms.unwrap_or(0);
            let info = info.clone();
            // Computing 512 fires takes up to some milliseconds, which must not block the thread of
            // a node.
            let computed = tokio::task::spawn_blocking(move || more_fires(&info)).await;
            let list = match computed.map(Result::transpose) {
                Ok(None) => continue,
                Ok(Some(Ok(list))) => list,
                Ok(Some(Err(error))) => {
                    self.meters().add(Counter::RefillRefused);
                    refilled.failed.push(format!("{name}: {error}"));
                    continue;
                }
                Err(panic) => match panic.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    // The runtime has ended.
                    Err(_) => return Ok(()),
                },
            };
            args.extend([
                name.clone().into_bytes(),
                version.to_string().into_bytes(),
                last.to_string().into_bytes(),
                list.encode().into_bytes(),
            ]);
            names.push(name);
        }
        if names.is_empty() {
            return Ok(());
        }
        let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
        // Harmless to repeat: a second call finds that the lists have changed.
        let mut reply = self.call(Verb::Refill, &args, Repeat::Harmless).await?;
        let results = schedules::refilled(&mut reply.body)?;
        for (name, result) in names.into_iter().zip(results) {
            match result {
                ListRefilled::Done(fires) => {
                    self.meters().add(Counter::Refilled);
                    refilled.lists += 1;
                    refilled.fires += fires;
                }
                ListRefilled::Kept => {}
                ListRefilled::Overtaken => refilled.overtaken += 1,
                ListRefilled::Refused(why) => {
                    self.meters().add(Counter::RefillRefused);
                    refilled.failed.push(format!("{name}: {why}"));
                }
            }
        }
        Ok(())
    }
}

/// The fires to add to a list, or to replace it with; `None` if the list needs none.
fn more_fires(info: &ScheduleInfo) -> Result<Option<FireList>, Error> {
    let (own, listed_by) = (tzdata_version(), info.tzdata.as_deref());
    let length = list_length();
    let list = match own.cmp(&listed_by) {
        // Newer time zone rules replace the whole list, from the last handled fire on.
        std::cmp::Ordering::Greater => listed_fires(&info.schedule, info.last_ms, length)?,
        std::cmp::Ordering::Equal if !info.is_list_final && info.listed < full_enough() => {
            let after_ms = info.listed_until_ms.unwrap_or(0).max(info.last_ms);
            let listed = usize::try_from(info.listed).unwrap_or(usize::MAX);
            let missing = length.saturating_sub(listed);
            listed_fires(&info.schedule, after_ms, missing)?
        }
        // Without the cargo feature this returns the error that says so.
        _ if own.is_none() => listed_fires(&info.schedule, info.last_ms, 1)?,
        _ => return Ok(None),
    };
    let needs = !list.times.is_empty() || list.is_final();
    Ok(needs.then_some(list))
}
