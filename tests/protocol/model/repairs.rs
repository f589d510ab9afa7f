//! The part of the model for `verify` and `audit`. The states of the model are sound, so these find
//! little.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};

use crate::model::client::driver::Driver;
use crate::model::client::operation::Operation;
use crate::model::message::Place;
use crate::model::world::{Now, World};
use crate::queue::DAY;
use crate::reply::{Reply, Text};

/// The parts that `audit` checks.
pub(crate) const PARTS: [&str; 7] = [
    "ready",
    "leases",
    "claims",
    "messages",
    "scheduled",
    "dead",
    "attrs",
];
/// After how many calls the client checks the queue.
const EVERY: usize = 29;
/// The length of the lease that a repair sets.
const UNKNOWN_MS: u64 = 60_000;

/// The latest possible end of a lease. One that ends later was stored before the clock went back.
pub(crate) fn latest_deadline(now: Now) -> u64 {
    now.ceil() + DAY
}

pub(crate) fn repaired_deadline(now: Now) -> u64 {
    now.ceil() + UNKNOWN_MS
}

/// The part of an audit's reply that the model predicts: the header and the findings. The number of
/// entries and the cursor depend on Redis's tables.
pub(crate) fn header_and_findings(reply: &Reply) -> Result<Reply> {
    let mut findings = reply.part(3)?.list()?.to_vec();
    findings.sort_by_key(|finding| format!("{finding:?}"));
    Ok(Reply::List(vec![
        reply.part(0)?.clone(),
        Reply::List(findings),
    ]))
}

fn found(what: [Text; 3], repairs: bool) -> Reply {
    let texts = what.iter().map(Reply::from);
    Reply::List(texts.chain([i64::from(repairs).into()]).collect())
}

impl Driver {
    /// Now and then a check of the queue: each part in turn, with and without repairs.
    pub(crate) fn check(&self) -> Option<Operation> {
        if !self.calls.is_multiple_of(EVERY) {
            return None;
        }
        let turn = self.calls / EVERY;
        let repairs = (turn / (PARTS.len() + 1)).is_multiple_of(2);
        Some(match PARTS.get(turn % (PARTS.len() + 1)) {
            Some(part) => Operation::Audit { part, repairs },
            None => Operation::Verify { repairs },
        })
    }
}

impl World {
    /// Verifies the queue. Finds that tokens are missing if no message was taken for so long that
    /// nodes may have missed the wake-up tokens.
    pub(crate) fn verify(&mut self, now: Now, repairs: bool) -> Reply {
        let (clock, ready) = (now.floor(), self.ready.first().cloned());
        let scheduled = self.listed("scheduled").first().map(|(due, _)| *due);
        let ready = ready.and_then(|id| self.place(&id).map(Place::time));
        let waits = scheduled.into_iter().chain(ready).min();
        let waits = waits.map_or(0, |due| clock.saturating_sub(due));
        let last_beat = self.beats.as_ref().map_or(0, |(_, _, seen, _)| *seen);
        let parked = self.parked_until.filter(|until| *until <= clock + 60_000);
        let parked = parked.filter(|_| !self.is_frozen).unwrap_or(0);
        let silence = clock.saturating_sub(last_beat.max(parked));
        let exists = self.incarnation.is_some();
        let is_silent =
            exists && self.wake == 0 && !self.paused && waits > 3_000 && silence > 3_000;
        let tag = if self.is_home { "" } else { "/17" };
        let wake = format!("dueq:{{q{tag}}}:wake");
        let what = is_silent.then(|| ["silent".into(), wake.into(), waits.into()]);
        let findings: Vec<_> = what.into_iter().map(|what| found(what, repairs)).collect();
        let header = self.finish(now, repairs && is_silent, !repairs);
        Reply::List(vec![header, Reply::List(findings)])
    }

    /// Audits a part. Returns what `header_and_findings` returns.
    pub(crate) fn audit(&mut self, now: Now, part: &str, repairs: bool) -> Reply {
        let repairs = repairs && self.incarnation.is_some();
        let lease = |id: &Text| Some((self.lease(id)?.0, self.place(id)?.time()));
        let mut late: BTreeMap<Text, u64> = self.messages.keys().filter_map(lease).collect();
        late.retain(|_, deadline| part == "leases" && *deadline > latest_deadline(now));
        let name = |lease: &Text| match lease.0.split_first() {
            Some((1, token)) => token.iter().map(|byte| format!("{byte:02x}")).collect(),
            _ => lease.text(),
        };
        let finding = |(lease, deadline): (&Text, &u64)| {
            let detail = format!("leased {deadline}");
            found(["score".into(), name(lease).into(), detail.into()], repairs)
        };
        let mut findings: Vec<_> = late.iter().map(finding).collect();
        let extended = self.extended();
        let left: Vec<Text> = self.starts.keys().cloned().collect();
        let is_looked_at = part == "claims" && !self.is_frozen;
        let is_left = |id: &Text| is_looked_at && !extended.iter().any(|(other, _)| other == id);
        for id in left.into_iter().filter(is_left) {
            findings.push(found(
                ["unleased".into(), id.clone(), "began".into()],
                repairs,
            ));
            if repairs {
                self.starts.remove(&id);
            }
        }
        findings.sort_by_key(|finding| format!("{finding:?}"));
        if repairs {
            let ids: Vec<Text> = self.messages.keys().cloned().collect();
            for id in ids {
                let is_late = self.lease(&id).is_some_and(|it| late.contains_key(&it.0));
                let place = self.messages.get_mut(&id).map(|message| &mut message.place);
                if let Some(Place::Leased { deadline, .. }) = place.filter(|_| is_late) {
                    *deadline = repaired_deadline(now);
                }
            }
            late.keys()
                .for_each(|_| self.meet("a lease of the future is repaired"));
        }
        let header = self.finish(now, repairs && !findings.is_empty(), !repairs);
        Reply::List(vec![header, Reply::List(findings)])
    }
}

/// Whether an audit looked at all entries of its part.
pub(crate) fn looked_at_all(part: &str, reply: &Reply) -> Result<()> {
    let cursor = reply.part(1)?.text()?;
    ensure!(cursor == "0" || part == "claims", "{part}: {reply:?}");
    Ok(())
}
