//! Decodes the replies to calls about schedules: schedule, schedules, amend, trigger, refill.

use super::ItemText;
use crate::error::{Applied, Error, ErrorKind};
use crate::model::schedule::{
    self as model, Schedule, ScheduleChanges, ScheduleCursor, ScheduleInfo, SchedulePage,
    ScheduleState, TriggerOutcome,
};
use crate::protocol::replies::{Body, Reply};
use crate::protocol::verbs::Verb;

/// The most refused schedules that an error names.
const MOST_NAMED: usize = 5;

/// The results so far of the calls of one apply.
pub(crate) struct Declared<'a> {
    set: &'a str,
    revision: Option<u64>,
    pub(crate) changes: ScheduleChanges,
    refused: Vec<(String, String)>,
}

impl<'a> Declared<'a> {
    pub(crate) fn new(set: &'a str, revision: Option<u64>) -> Self {
        let (changes, refused) = Default::default();
        Self {
            set,
            revision,
            changes,
            refused,
        }
    }

    /// Adds the reply to a call that declared these schedules. Returns whether schedules are left
    /// to remove.
    pub(crate) fn take(&mut self, items: &[[Vec<u8>; 6]], mut reply: Reply) -> Result<bool, Error> {
        let body = &mut reply.body;
        let outcome = self.outcome(body)?;
        let replies = body.texts()?;
        if replies.len() != items.len() {
            return Err(body.unexpected(&format!(
                "{} results of {} schedules",
                replies.len(),
                items.len()
            )));
        }
        for ([name, ..], text) in items.iter().zip(&replies) {
            let name = String::from_utf8_lossy(name).into_owned();
            let item = ItemText::new(Verb::Schedule, text);
            let list = match (&*outcome, item.word) {
                ("INVALID", "INVALID") => {
                    self.refused.push((name, item.detail.to_owned()));
                    continue;
                }
                ("INVALID", _) => continue,
                (_, "CREATED") => &mut self.changes.created,
                (_, "CHANGED") => &mut self.changes.changed,
                (_, "KEPT") => &mut self.changes.kept,
                _ => return Err(item.unexpected()),
            };
            let next_ms = Some(item.time_ms()?).filter(|ms| *ms > 0);
            list.push(model::ScheduleChange { name, next_ms });
        }
        self.changes.removed.extend(body.texts()?);
        Ok(!body.is_empty() && body.integer()? == 1)
    }

    /// Adds the reply to a call that only removes. Returns whether schedules are left to remove.
    pub(crate) fn take_removed(&mut self, mut reply: Reply) -> Result<bool, Error> {
        self.outcome(&mut reply.body)?;
        reply.body.texts()?;
        self.changes.removed.extend(reply.body.texts()?);
        Ok(reply.body.integer()? == 1)
    }

    fn outcome(&self, body: &mut Body) -> Result<String, Error> {
        let outcome = body.text()?;
        if let Some(stored) = outcome.strip_prefix("STALE ") {
            let (set, revision) = (self.set, self.revision.unwrap_or_default());
            let message = format!(
                "the set {set} of schedules has revision {stored}, and this call has {revision}: it changed nothing, as a \
                 newer release has declared the set"
            );
            return Err(
                Error::new(ErrorKind::InvalidInput, Applied::No, message).with_code("STALE")
            );
        }
        match &*outcome {
            "OK" | "INVALID" => Ok(outcome),
            other => Err(body.unexpected(&format!("the outcome {other:?}"))),
        }
    }

    /// Returns an error if a schedule was refused.
    pub(crate) fn judge(&mut self) -> Result<(), Error> {
        if self.refused.is_empty() {
            return Ok(());
        }
        let refused = std::mem::take(&mut self.refused);
        let reasons = refused
            .iter()
            .map(|(name, why)| format!("schedule {name:?}: {why}"));
        let reasons: Vec<_> = reasons.collect();
        let more = match reasons.len().saturating_sub(MOST_NAMED) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        let named = reasons[..reasons.len().min(MOST_NAMED)].join("; ");
        let error = Error::invalid(format!("{named}{more} (nothing was changed)"));
        Err(error.of_schedules(refused))
    }
}

/// Decodes a page of schedules.
pub(crate) fn page(body: &mut Body) -> Result<SchedulePage, Error> {
    let next = Some(body.bytes()?).filter(|cursor| !cursor.is_empty());
    let mut items = body.parts()?;
    let mut schedules = Vec::with_capacity(items.len());
    while !items.is_empty() {
        schedules.push(info(items.parts()?)?);
    }
    Ok(SchedulePage {
        schedules,
        next: next.map(ScheduleCursor),
    })
}

fn info(mut item: Body) -> Result<ScheduleInfo, Error> {
    let item = &mut item;
    let name = item.text()?;
    let state = item.text()?;
    let state = ScheduleState::parse(&state)
        .ok_or_else(|| item.unexpected(&format!("the state {state:?} of a schedule")))?;
    let next = item.count()?;
    let next_ms = Some(next).filter(|_| state == ScheduleState::Active);
    let first_paused_ms = Some(next).filter(|_| state == ScheduleState::Paused && next > 0);
    let [
        last_ms,
        since_ms,
        made,
        missed,
        overlapped,
        paused,
        triggered,
    ] = counts(item)?;
    let version = item.text()?;
    let version = version.parse();
    let version = version.map_err(|_| item.unexpected("the version of a schedule is no number"))?;
    let (spec, options, pattern) = (item.text()?, item.text()?, item.text()?);
    let tzdata = Some(item.text()?).filter(|version| !version.is_empty());
    let listed_until_ms = Some(item.count()?).filter(|ms| *ms > 0);
    let is_list_final = item.integer()? == 1;
    let listed = item.count()?;
    let schedule = Schedule::parse(&name, &spec, &options, &pattern);
    let mut schedule =
        schedule.ok_or_else(|| item.unexpected(&format!("the spec {spec:?} of a schedule")))?;
    let mut listed_ms = Vec::new();
    if !item.is_empty() {
        schedule.payload = item.bytes()?;
        let times = item.text()?;
        listed_ms = times.split(' ').filter_map(|ms| ms.parse().ok()).collect();
    }
    let set = spec.split(' ').find_map(|word| word.strip_prefix("set="));
    Ok(ScheduleInfo {
        set: set.unwrap_or_default().to_owned(),
        zone: schedule.zone.clone(),
        name,
        state,
        next_ms,
        first_paused_ms,
        last_ms,
        since_ms,
        made,
        missed,
        overlapped,
        paused,
        triggered,
        version,
        schedule,
        spec,
        pattern,
        tzdata,
        listed,
        listed_until_ms,
        is_list_final,
        listed_ms,
    })
}

fn counts<const N: usize>(item: &mut Body) -> Result<[u64; N], Error> {
    let mut counts = [0; N];
    for count in &mut counts {
        *count = item.count()?;
    }
    Ok(counts)
}

/// Decodes whether the schedule of an amend exists.
pub(crate) fn amended(body: &mut Body) -> Result<bool, Error> {
    let items = body.texts()?;
    let item = items.first().map(|text| ItemText::new(Verb::Amend, text));
    let item = item.ok_or_else(|| body.unexpected("no result"))?;
    match item.word {
        "OK" => Ok(true),
        "GONE" => Ok(false),
        _ => Err(item.refusal()),
    }
}

/// Decodes the results of a trigger; `None` if there is no such schedule.
pub(crate) fn triggered(
    body: &mut Body,
) -> Result<Option<Vec<Result<TriggerOutcome, Error>>>, Error> {
    // The reply has the word `GONE` instead of a list.
    let items = match body.texts_or_word()? {
        Ok(items) => items,
        Err(word) if word == "GONE" => return Ok(None),
        Err(word) => return Err(body.unexpected(&format!("the word {word:?}"))),
    };
    let results = items.iter().map(|text| {
        let item = ItemText::new(Verb::Trigger, text);
        match item.word {
            "CREATED" => Ok(TriggerOutcome::Created(item.detail.to_owned())),
            "EXISTS" => Ok(TriggerOutcome::Exists(item.detail.to_owned())),
            "OVERLAPS" => Ok(TriggerOutcome::Overlaps),
            _ => Err(item.refusal()),
        }
    });
    Ok(Some(results.collect()))
}

/// The result of the refill of one list of fires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListRefilled {
    /// The list has this number of fires now.
    Done(u64),
    /// The list stays as it is: newer time zone rules made it.
    Kept,
    /// The list stays as it is: another client changed it first, or the schedule is gone.
    Overtaken,
    Refused(String),
}

/// Decodes the results of a refill, in the order of its lists.
pub(crate) fn refilled(body: &mut Body) -> Result<Vec<ListRefilled>, Error> {
    let items = body.texts()?;
    let results = items.iter().map(|text| {
        let item = ItemText::new(Verb::Refill, text);
        match item.word {
            "OK" => item.time_ms().map(ListRefilled::Done),
            "KEPT" => Ok(ListRefilled::Kept),
            "CHANGED" | "GONE" => Ok(ListRefilled::Overtaken),
            "INVALID" => Ok(ListRefilled::Refused(item.detail.to_owned())),
            _ => Err(item.unexpected()),
        }
    });
    results.collect()
}
