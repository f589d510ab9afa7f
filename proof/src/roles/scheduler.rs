//! Declares, triggers, backfills, pauses, resumes and removes schedules, while their ticks are
//! claimed.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use dueq::schedules::ScheduleState;
use dueq::{Due, Error, ErrorKind, Queue};
use fastrand::Rng;
use tokio::task::JoinSet;

use super::{Options, Stop};
use crate::history::now_us;
use crate::queues::TICKS;
use crate::ticks::{SCHEDULES, SET, WINDOWED, every_ms, is_limited, is_removed, name, schedule};
use crate::workload::{Push, hash};

/// The pause between two actions, in ms.
const PAUSE_MS: std::ops::Range<u64> = 50..300;
/// How long the queue or a schedule is paused, in ms.
const SHORT_MS: std::ops::Range<u64> = 40..400;
/// By how much an older revision is older: 10 s, because revisions are clock times in us.
const OLDER: u64 = 10_000_000;

/// The most fires that a backfill covers; below, the greatest age of the last of them, in ms.
const BACKFILLED: u64 = 6;
const BACKFILL_MS: u64 = 3_000;

/// The number of ids with a window; below, how many are pushed at once.
const WINDOWS: usize = 6;
const PUSHES: usize = 8;
const WINDOW: Duration = Duration::from_secs(3);

pub(super) async fn run(options: &Options, queues: Vec<Queue>, stop: Stop) -> Result<()> {
    let queue = queues.into_iter().find(|queue| queue.name() == TICKS);
    let mut scheduler = Scheduler {
        queue: queue.context("no queue of schedules")?,
        generations: [0; SCHEDULES],
        rng: Rng::with_seed(options.seed ^ hash(options.name.as_bytes())),
    };
    let (mut restored, mut deck) = (false, Act::FIRST.to_vec());
    while !*stop.borrow() {
        // An earlier process may have been killed during a pause, and a failover may have undone
        // the end of one.
        let acted = match restored {
            true => {
                if deck.is_empty() {
                    deck.extend(Act::ALL);
                    scheduler.rng.shuffle(&mut deck);
                }
                match deck.pop() {
                    Some(act) => scheduler.act(act).await,
                    None => Ok(()),
                }
            }
            false => scheduler.restore().await,
        };
        if let Err(error) = &acted {
            tracing::warn!(%error, "an act failed");
        }
        restored = acted.is_ok();
        scheduler.rest(PAUSE_MS).await;
    }
    // Pauses all schedules, so that the queue can drain.
    while let Err(error) = scheduler.end().await {
        tracing::warn!(%error, "pausing all schedules failed");
        scheduler.rest(PAUSE_MS).await;
    }
    Ok(())
}

#[derive(Debug, Clone, Copy)]
enum Act {
    /// Declares all schedules unchanged.
    Same,
    /// Declares all schedules, one of them changed.
    Change,
    /// Declares some of the schedules.
    Some,
    /// Removes some of the schedules that may be removed.
    Prune,
    /// Declares all schedules with an older revision, which is refused.
    Older,
    Trigger,
    /// Makes ticks of some past fires again.
    Backfill,
    /// Lists more fires of crons, beside the leader, which does so too.
    Refill,
    /// Declares a schedule again that has ended or will end.
    Renew,
    /// Pauses some schedules for a moment.
    Pause,
    /// Mostly only reads some schedules; sometimes removes one.
    Remove,
    PauseQueue,
    Examine,
    /// Pushes messages with a window.
    Windows,
}

impl Act {
    /// The order of the first actions. Those at the end are taken first, so that a short run has
    /// them.
    const FIRST: [Self; 12] = [
        Self::Windows,
        Self::Windows,
        Self::Trigger,
        Self::Backfill,
        Self::Refill,
        // Once more: some schedules have ended since the first renewal.
        Self::Renew,
        Self::PauseQueue,
        Self::Same,
        Self::Older,
        Self::Renew,
        Self::Examine,
        Self::Pause,
    ];
    const ALL: [Self; 35] = [
        Self::Windows,
        Self::Windows,
        Self::Windows,
        Self::Same,
        Self::Same,
        Self::Same,
        Self::Change,
        Self::Change,
        Self::Change,
        Self::Some,
        Self::Some,
        Self::Prune,
        Self::Older,
        Self::Older,
        Self::Trigger,
        Self::Trigger,
        Self::Trigger,
        Self::Trigger,
        Self::Backfill,
        Self::Backfill,
        Self::Backfill,
        Self::Backfill,
        Self::Refill,
        Self::Refill,
        Self::Renew,
        Self::Renew,
        Self::Renew,
        Self::Renew,
        Self::Pause,
        Self::Pause,
        Self::Remove,
        Self::Remove,
        Self::Remove,
        Self::PauseQueue,
        Self::Examine,
    ];
}

struct Scheduler {
    queue: Queue,
    /// The generation of each schedule.
    generations: [u32; SCHEDULES],
    rng: Rng,
}

impl Scheduler {
    /// Declares all schedules, and ends all pauses.
    async fn restore(&mut self) -> Result<(), Error> {
        if self.queue.stats().await?.paused {
            self.queue.resume().await?;
        }
        self.apply(0..SCHEDULES, now_us(), true).await?;
        for found in self.queue.list_schedules(None, 1_000).await?.schedules {
            if found.state == ScheduleState::Paused {
                self.queue.schedule(found.name).resume().await?;
            }
        }
        Ok(())
    }

    async fn end(&mut self) -> Result<(), Error> {
        if self.queue.stats().await?.paused {
            self.queue.resume().await?;
        }
        let mut pausing = JoinSet::new();
        for number in 0..SCHEDULES {
            let handle = self.queue.schedule(name(number));
            pausing.spawn(async move { handle.pause().await });
        }
        let paused = pausing.join_all().await;
        paused.into_iter().try_for_each(|paused| paused.map(drop))
    }

    async fn act(&mut self, act: Act) -> Result<(), Error> {
        let number = self.rng.usize(0..SCHEDULES);
        let handle = self.queue.schedule(name(number));
        match act {
            Act::Same => self.apply(0..SCHEDULES, now_us(), false).await,
            Act::Change => {
                self.change(number);
                self.apply(0..SCHEDULES, now_us(), true).await
            }
            Act::Some => {
                self.change(number);
                self.apply(number..SCHEDULES, now_us(), false).await
            }
            Act::Prune => self.prune().await,
            Act::Older => {
                let revision = now_us().saturating_sub(OLDER);
                match self.apply(0..SCHEDULES, revision, true).await {
                    Err(error) if error.code() == Some("STALE") => Ok(()),
                    other => other,
                }
            }
            Act::Trigger => handle.trigger().await.map(drop),
            Act::Backfill => {
                let until_ms = self.rng.u64(0..BACKFILL_MS);
                let from_ms = until_ms + every_ms(number) * self.rng.u64(0..BACKFILLED);
                let ago = |ms| SystemTime::now() - Duration::from_millis(ms);
                // Two backfills at once: each tick is made by only one of them.
                let backfill = async || handle.backfill(ago(from_ms), ago(until_ms)).await;
                let (one, other) = tokio::join!(backfill(), backfill());
                match one.and(other) {
                    // The schedule was removed meanwhile.
                    Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(()),
                    done => done.map(drop),
                }
            }
            Act::Refill => self.queue.refill_schedules().await.map(drop),
            Act::Renew => {
                (0..SCHEDULES)
                    .filter(|number| is_limited(*number))
                    .for_each(|number| self.change(number));
                self.apply(0..SCHEDULES, now_us(), false).await
            }
            Act::Pause => {
                // One of each kind: a cron, one with a limit, one that may be removed.
                let some = (0..SCHEDULES).step_by(9);
                let some: Vec<_> = some
                    .map(|step| self.queue.schedule(name((number + step) % SCHEDULES)))
                    .collect();
                for handle in &some {
                    handle.pause().await?;
                }
                self.rest(SHORT_MS).await;
                for handle in &some {
                    handle.resume().await?;
                }
                Ok(())
            }
            Act::Remove if is_removed(number) => {
                handle.remove().await?;
                if self.rng.bool() {
                    self.apply(0..SCHEDULES, now_us(), false).await?;
                }
                Ok(())
            }
            Act::Remove => self.queue.list_schedules(None, 10).await.map(drop),
            Act::PauseQueue => {
                self.queue.pause().await?;
                self.rest(SHORT_MS).await;
                // Some fires are late by now, and the call keeps them.
                self.apply(0..SCHEDULES, now_us(), false).await?;
                self.queue.resume().await
            }
            Act::Windows => self.windows().await,
            Act::Examine => {
                self.windows().await?; // the handlers of those messages run meanwhile
                self.queue.examine(self.rng.bool()).await.map(drop)
            }
        }
    }

    fn change(&mut self, number: usize) {
        self.generations[number] += 1;
    }

    /// Pushes each id repeatedly: its window refuses most pushes, whatever happened to the message.
    async fn windows(&mut self) -> Result<(), Error> {
        for _ in 0..PUSHES {
            let id = format!("{WINDOWED}{}", self.rng.usize(0..WINDOWS));
            let push = Push::again(id, Due::AfterMs(self.rng.u64(0..100)));
            let message = push.message().window(WINDOW);
            self.queue.push_message(message).await?;
        }
        Ok(())
    }

    async fn prune(&mut self) -> Result<(), Error> {
        let kept: Vec<_> = (0..SCHEDULES)
            .filter(|number| !is_removed(*number) || self.rng.bool())
            .collect();
        self.apply(kept, now_us(), true).await
    }

    async fn apply(
        &self,
        numbers: impl IntoIterator<Item = usize>,
        revision: u64,
        prune: bool,
    ) -> Result<(), Error> {
        let declared = numbers.into_iter();
        let declared = declared.map(|number| {
            let schedule = schedule(number, self.generations[number])?;
            Ok((name(number), schedule))
        });
        let declared = declared.collect::<Result<Vec<_>, Error>>()?;
        let set = self.queue.schedules(SET).revision(revision);
        let all = declared.iter().map(|(_, schedule)| schedule.clone());
        let Err(error) = set.clone().prune(prune).apply(all).await else {
            return Ok(());
        };
        let refused = error.refused_schedules().iter().map(|(name, _)| &**name);
        let refused: BTreeSet<_> = refused.collect();
        if refused.is_empty() || error.kind() != ErrorKind::InvalidInput {
            return Err(error);
        }
        // The list of a cron ran dry before the call, or the server's clock went back.
        let rest = declared.into_iter();
        let rest = rest.filter(|(name, _)| !refused.contains(&**name));
        set.apply(rest.map(|(_, schedule)| schedule))
            .await
            .map(drop)
    }

    async fn rest(&mut self, range_ms: std::ops::Range<u64>) {
        tokio::time::sleep(Duration::from_millis(self.rng.u64(range_ms))).await;
    }
}
