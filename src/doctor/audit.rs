//! The audit of every message of a queue, in steps at the caller's pace.

use std::fmt;
use std::sync::Arc;

use crate::doctor::checkup::Finding;
use crate::doctor::findings::raw_findings;
use crate::doctor::queue::{finding_at, verify};
use crate::error::Error;
use crate::model::codec::Codec;
use crate::protocol::counts::MAX_ITEMS;
use crate::protocol::verbs::Verb;
use crate::queue::Queue;
use crate::router::{Partitions, Router};
use crate::server::patience::Repeat;

/// The parts of an audit, in order. Leases come first: a lease without a claim must be repaired
/// before the audit derives the state of an id from leases.
const PARTS: [&str; 7] = [
    "ready",
    "leases",
    "claims",
    "messages",
    "scheduled",
    "dead",
    "attrs",
];

/// What one step of an audit found: see [`AuditSteps`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditProgress {
    /// About how many entries of keys the step examined. A message has several entries.
    pub looked: u64,
    /// The faults of these entries, also those that this step has repaired.
    pub findings: Vec<Finding>,
    /// Whether there is no further step.
    pub is_end: bool,
}

/// An audit of a queue in steps: each [`step`](AuditSteps::step) is one call, or two if there is
/// something to repair, and the caller sets the pace. [`Queue::audit_steps`] makes one.
///
/// Nothing runs between two steps, and Redis stores nothing of the audit. To stop it, drop this
/// value.
pub struct AuditSteps {
    router: Arc<Router>,
    repair: bool,
    /// The progress of the audit; `None` before the first step.
    run: Option<Run>,
}

/// The progress of an audit.
struct Run {
    /// How many partitions `verify` has checked.
    verified: usize,
    audit: Audit,
}

/// The part of an audit that examines each entry.
pub(super) struct Audit {
    partitions: Arc<Partitions>,
    repair: bool,
    part: usize,
    partition: usize,
    cursor: String,
}

impl<C: Codec> Queue<C> {
    /// Returns the audit of [`examine`](Queue::examine) in steps. It checks that each id is in
    /// exactly one state and has its payload, claim and attributes. It also checks the queue's
    /// keys, limits, encodings and wake-up list. With `repair` each step repairs what it finds. It
    /// does not check whether due messages are delivered:
    /// [`examine_briefly`](Queue::examine_briefly) does.
    ///
    /// The caller needs the rights of an operator. This method makes no call.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// orders.push("rate it").await?;
    /// let repair = false;
    /// let mut steps = orders.audit_steps(repair);
    /// loop {
    ///     let progress = steps.step(250).await?;
    ///     assert!(progress.findings.is_empty());
    ///     if progress.is_end {
    ///         break;
    ///     }
    /// }
    /// # });
    /// ```
    pub fn audit_steps(&self, repair: bool) -> AuditSteps {
        AuditSteps {
            router: Arc::clone(self.router()),
            repair,
            run: None,
        }
    }
}

impl AuditSteps {
    /// Examines about `limit` entries (1 to 1,000). 250 entries occupy Redis for 1 to 2 ms.
    /// Whatever the limit, the first step reads the map of the partitions, and the first step of
    /// each partition checks its keys. After the end a step makes no call.
    ///
    /// # Errors
    /// After an error, or if the future is dropped, a further call examines the same entries again.
    /// If a reply with repaired faults was lost, those faults are not reported again.
    pub async fn step(&mut self, limit: usize) -> Result<AuditProgress, Error> {
        if !(1..=MAX_ITEMS).contains(&limit) {
            return Err(Error::invalid(format!(
                "a step of {limit} entries: a step has 1 to {MAX_ITEMS}"
            )));
        }
        if self.run.is_none() {
            let partitions = self.router.refresh(&self.router.current()).await?;
            let audit = Audit::new(partitions, self.repair);
            self.run = Some(Run { verified: 0, audit });
        }
        let Some(run) = &mut self.run else {
            return Err(Error::invalid("the audit has not begun")); // `run` is set above
        };
        let (looked, findings) = match run.audit.partitions.list().get(run.verified) {
            Some(_) => (0, run.verify(self.repair).await?),
            None => run.audit.step(limit).await?,
        };
        Ok(AuditProgress {
            looked,
            findings,
            is_end: run.audit.part().is_none(),
        })
    }
}

impl Run {
    /// Verifies the keys of the next partition; the audit of its entries relies on them.
    async fn verify(&mut self, repair: bool) -> Result<Vec<Finding>, Error> {
        let partitions = &self.audit.partitions;
        let partition = &partitions.list()[self.verified];
        let mut frame = verify(partition, false).await?;
        // An audit does not look a second time after a beat, so it cannot tell that no worker
        // delivers due messages.
        frame.findings.retain(|found| found.kind != "silent");
        if repair && !frame.findings.is_empty() {
            frame = verify(partition, true).await?;
        }
        self.verified += 1;
        let findings = frame.findings.into_iter();
        Ok(findings
            .map(|raw| finding_at(partitions, partition, raw))
            .collect())
    }
}

impl Audit {
    pub(super) fn new(partitions: Arc<Partitions>, repair: bool) -> Self {
        Self {
            partitions,
            repair,
            part: 0,
            partition: 0,
            cursor: "0".to_owned(),
        }
    }

    /// The name of the part that the next step examines; `None` at the end.
    pub(super) fn part(&self) -> Option<&'static str> {
        PARTS.get(self.part).copied()
    }

    /// Examines about `limit` entries of one partition. Returns how many it examined, and their
    /// faults.
    pub(super) async fn step(&mut self, limit: usize) -> Result<(u64, Vec<Finding>), Error> {
        let Some(part) = self.part() else {
            return Ok((0, Vec::new()));
        };
        let partition = &self.partitions.list()[self.partition];
        let (limit, word): (_, &[u8]) = (limit.to_string(), if self.repair { b"1" } else { b"" });
        let args = [
            part.as_bytes(),
            self.cursor.as_bytes(),
            limit.as_bytes(),
            word,
        ];
        let audited = partition.call(Verb::Audit, &args, Repeat::Harmless);
        let mut reply = audited.await?;
        let cursor = reply.body.text()?;
        let looked = reply.body.count()?;
        let raw = raw_findings(&mut reply.body)?.into_iter();
        let findings = raw
            .map(|raw| finding_at(&self.partitions, partition, raw))
            .collect();
        if cursor == "0" {
            self.partition += 1;
        }
        if self.partition == self.partitions.list().len() {
            (self.part, self.partition) = (self.part + 1, 0);
        }
        self.cursor = cursor;
        Ok((looked, findings))
    }
}

impl fmt::Debug for AuditSteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditSteps")
            .field("queue", &self.router.queue_name())
            .field("repair", &self.repair)
            .finish_non_exhaustive()
    }
}
