//! Examines a queue and repairs it.

use std::sync::Arc;
use std::time::Duration;

use crate::doctor::audit::Audit;
use crate::doctor::checkup::{Checkup, Finding, UncheckedPart, is_denied};
use crate::doctor::deliveries::{SHORT_PARK, is_late};
use crate::doctor::findings::{RawFinding, finding, raw_findings};
use crate::doctor::shell::{redis_cli, shell_word};
use crate::error::{Error, ErrorKind};
use crate::model::codec::Codec;
use crate::partition::Partition;
use crate::protocol::counts::AUDIT;
use crate::protocol::partition_map::PartitionMap;
use crate::protocol::verbs::Verb;
use crate::queue::Queue;
use crate::router::Partitions;
use crate::server::patience::Repeat;

/// How many schedules a brief examination reads: one page of them.
const BRIEF_SCHEDULES: u64 = 1_000;
/// A wait that is longer than the interval between beats. Each beat of a node adds a wake-up token
/// if due work is left.
const BEAT: Duration = Duration::from_millis(1_200);

/// What `verify` reports of a partition.
pub(super) struct Frame {
    exists: bool,
    pub(super) findings: Vec<RawFinding>,
}

impl Frame {
    /// Whether due work waits while no node beats.
    fn is_silent(&self) -> bool {
        self.findings.iter().any(|found| found.kind == "silent")
    }
}

impl<C: Codec> Queue<C> {
    /// Checks the queue, and repairs it if `repair` is true.
    ///
    /// It checks that each id is in exactly one state and has its payload, claim and attributes,
    /// and it checks the placeholders, the fields of meta, the encodings and the wake-up list. The
    /// protocol documentation says for each finding how it is repaired. The caller needs the rights
    /// of an operator.
    ///
    /// Each step is one script call that decides and repairs at once. The steps are bounded, so
    /// that producers and workers may go on meanwhile.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// orders.push("rate it").await?;
    /// let repair = false;
    /// for finding in orders.examine(repair).await?.findings {
    ///     println!("{}: {}; run: {}", finding.problem, finding.consequence, finding.remedy);
    /// }
    /// # });
    /// ```
    pub async fn examine(&self, repair: bool) -> Result<Checkup, Error> {
        self.checkup(repair, true).await
    }

    /// Checks the queue in a few calls, however many messages it has: [`examine`](Queue::examine)
    /// without the audit of each message and without repairs. It finds out whether due messages are
    /// delivered, and checks the queue's keys, limits, encodings and wake-up list, and up to 1,000
    /// schedules. If due messages are late, it looks again after 1 to 4 s.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// orders.push("rate it").await?;
    /// for finding in orders.examine_briefly().await?.findings {
    ///     println!("{}: {}; run: {}", finding.problem, finding.consequence, finding.remedy);
    /// }
    /// # });
    /// ```
    pub async fn examine_briefly(&self) -> Result<Checkup, Error> {
        self.checkup(false, false).await
    }

    async fn checkup(&self, repair: bool, with_audit: bool) -> Result<Checkup, Error> {
        let mut checkup = Checkup::default();
        // Boxed: rustc limits the depth of nested futures.
        match Box::pin(self.examined(repair, with_audit, &mut checkup)).await {
            Ok(()) => {}
            Err(error) if error.code() == Some("WRONGTYPE") => {
                self.foreign_keys(&mut checkup).await?
            }
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                let consequence = "this release does not read or write the queue";
                checkup.wrong(
                    "layout",
                    "layout",
                    error.to_string(),
                    consequence,
                    "use a newer dueq",
                );
            }
            Err(error) if is_denied(&error) => {
                let _: Option<()> = checkup.allowed("the queue (verify, audit)", Err(error))?;
            }
            Err(error) => checkup.interrupted("the rest of the queue (audit)", error)?,
        }
        Ok(checkup)
    }

    async fn examined(
        &self,
        repair: bool,
        with_audit: bool,
        checkup: &mut Checkup,
    ) -> Result<(), Error> {
        // The lost map is read before any other call, which would write the map back.
        let lost = self.router().lost_map().await;
        if let Ok(Some(map)) = lost {
            let restored = match repair {
                true => self.partition_into(map.new.len()).await,
                false => Ok(()),
            };
            let is_repaired = repair && restored.is_ok();
            checkup.lost_home(self.name(), &map, is_repaired);
            if !is_repaired {
                return restored;
            }
        }
        // `stats` only reads, so it works even on a server that refuses writes. If it fails because
        // a key has the wrong type or a count is invalid, `verify` and `audit` report that.
        let mut stats = match self.stats_reached().await {
            Ok(reached) => match reached.gap() {
                Some(gap) => {
                    checkup.unread(gap);
                    checkup.deliveries(self.name(), &reached.value, false);
                    return Ok(());
                }
                None => Ok(reached.value),
            },
            Err(error) if error.is_retryable() => return Err(error),
            Err(error) => Err(error),
        };
        if stats.as_ref().is_ok_and(is_late) {
            // If the server was stalled, so were the nodes: look again after their next beat. The
            // next beat in a parked queue comes when its parking time ends, at the latest.
            let parked = stats.as_ref().map_or(0, |stats| stats.parked_ms);
            let left = Duration::from_millis(parked).min(SHORT_PARK);
            tokio::time::sleep(BEAT + left).await;
            stats = self.stats().await;
        }
        let Some(partitions) = self.examined_partitions(checkup).await? else {
            return Ok(());
        };
        if let Some(url) = self.router().moved_map().and_then(|map| map.url) {
            checkup.moved(self.name(), &url);
        }
        checkup.maps(&partitions, self.name(), repair).await?;
        if with_audit {
            checkup.orphans(self.router(), &partitions, repair).await?;
        }
        checkup.spread(self.router(), &partitions).await?;
        let mut frames = verify_all(&partitions, false).await;
        let is_silent = |frames: &Result<Vec<Frame>, Error>| {
            let mut frames = frames.iter().flatten();
            frames.any(Frame::is_silent)
        };
        if is_silent(&frames) {
            tokio::time::sleep(BEAT).await;
            frames = verify_all(&partitions, false).await;
        }
        if let Ok(stats) = &stats {
            checkup.deliveries(self.name(), stats, is_silent(&frames));
        }
        for partition in partitions.list() {
            checkup.limits(partition).await?;
        }
        if stats.as_ref().is_ok_and(|stats| stats.leased > 0) {
            self.leases_of_the_gone(checkup).await?;
        }
        if let Ok(stats) = &stats
            && (with_audit || stats.schedules <= BRIEF_SCHEDULES)
        {
            let home = partitions.home();
            let reply = home.call(Verb::Stats, &[], Repeat::Harmless).await?;
            let now_ms = u64::try_from(reply.header.now_us / 1_000).unwrap_or(0);
            checkup.schedules(home, stats, now_ms).await?;
        }
        let mut frames = frames?;
        if repair && frames.iter().any(|frame| !frame.findings.is_empty()) {
            frames = verify_all(&partitions, true).await?;
        }
        checkup.fact("exists", frames.iter().any(|frame| frame.exists));
        for (partition, frame) in partitions.list().iter().zip(frames) {
            for raw in frame.findings {
                checkup.found(finding_at(&partitions, partition, raw));
            }
        }
        if with_audit {
            audit(&partitions, repair, checkup).await?;
        }
        if let Err(error) = stats
            && checkup.findings.is_empty()
        {
            checkup.unchecked.push(UncheckedPart {
                what: "whether messages are delivered (stats)",
                why: error.to_string(),
            });
        }
        Ok(())
    }

    /// The partitions by the map at the home; `None` if that map cannot be read.
    async fn examined_partitions(
        &self,
        checkup: &mut Checkup,
    ) -> Result<Option<Arc<Partitions>>, Error> {
        let router = self.router();
        let (known, home) = (router.current(), router.home());
        let meta = home.keys().meta();
        let text = home.control().fields(meta, ["map"]).await;
        let Some([text]) = checkup.allowed("the map of the partitions (HMGET)", text)? else {
            return Ok(Some(known));
        };
        if let Some(Err(error)) = text.map(|text| PartitionMap::parse(self.name(), &text)) {
            checkup.unreadable_map(self.name(), meta, &error);
            return Ok(None);
        }
        router.refresh(&known).await.map(Some)
    }

    /// Adds a finding for each key of the queue whose Redis type is not the one that dueq uses.
    async fn foreign_keys(&self, checkup: &mut Checkup) -> Result<(), Error> {
        for partition in self.router().current().list() {
            self.foreign_keys_of(partition, checkup).await?;
        }
        Ok(())
    }

    async fn foreign_keys_of(
        &self,
        partition: &Partition,
        checkup: &mut Checkup,
    ) -> Result<(), Error> {
        // The wake-up list is skipped: `verify` checks it, and no call fails if its type is wrong.
        for (key, due) in partition.keys().typed().take(self.keys().len()) {
            let kind = partition.control().type_of(key).await;
            let Some(kind) = checkup.allowed("types of the keys (TYPE)", kind)? else {
                return Ok(());
            };
            if kind != due && kind != "none" {
                let problem =
                    format!("{key} is a {kind}, not a {due}: another program has written it");
                let consequence = "every call that needs this key fails with WRONGTYPE";
                let remedy = redis_cli(&format!("RENAME {} ELSEWHERE", shell_word(key.as_bytes())));
                checkup.wrong("type", key, problem, consequence, remedy);
            }
        }
        Ok(())
    }
}

/// Calls `verify` at each partition.
async fn verify_all(partitions: &Partitions, repair: bool) -> Result<Vec<Frame>, Error> {
    let mut frames = Vec::new();
    for partition in partitions.list() {
        frames.push(verify(partition, repair).await?);
    }
    Ok(frames)
}

/// Calls `verify` at one partition.
pub(super) async fn verify(partition: &Partition, repair: bool) -> Result<Frame, Error> {
    let word: &[u8] = if repair { b"1" } else { b"" };
    let args = [word];
    let verified = partition.call(Verb::Verify, &args, Repeat::Harmless);
    let mut reply = verified.await?;
    Ok(Frame {
        exists: !reply.header.incarnation.is_empty(),
        findings: raw_findings(&mut reply.body)?,
    })
}

/// Calls `audit` step by step, for each part and each partition.
async fn audit(
    partitions: &Arc<Partitions>,
    repair: bool,
    checkup: &mut Checkup,
) -> Result<(), Error> {
    let mut audit = Audit::new(Arc::clone(partitions), repair);
    let mut checked = 0;
    while let Some(part) = audit.part() {
        let (looked, findings) = audit.step(AUDIT).await?;
        checked += looked;
        for finding in findings {
            checkup.found(finding);
        }
        if audit.part() != Some(part) {
            checkup.fact(part, checked);
            checked = 0;
        }
    }
    Ok(())
}

/// The finding of a partition. In a queue of several partitions its text names the partition.
pub(super) fn finding_at(
    partitions: &Partitions,
    partition: &Partition,
    raw: RawFinding,
) -> Finding {
    let mut finding = finding(partition.queue_name(), raw);
    if partitions.list().len() > 1 {
        let (index, tag) = (partition.index(), partition.tag());
        finding.problem = format!("partition {index} ({tag}): {}", finding.problem);
    }
    finding
}
