//! Changes the number of partitions of a queue again and again, and sometimes takes a change back.
//! Several movers may run at once: each joins the change that runs.

use std::time::Duration;

use anyhow::{Context, Result};
use dueq::{Error, Queue};
use fastrand::Rng;
use tokio::signal::unix::Signal;

use super::{Options, Stop};
use crate::history::Event;
use crate::queues::{PARTITIONED, is_partitioned};
use crate::recorder::{Diary, freeze_with_a_batch};
use crate::workload::hash;

/// The pause between two changes, in ms.
const PAUSE_MS: std::ops::Range<u64> = 500..3_000;
/// One change in so many is taken back; and after which time, in ms.
const ABORTED: u32 = 4;
const ABORT_MS: std::ops::Range<u64> = 1_000..8_000;

/// How long the last change may take after the end of the run. With broken scripts it may never end.
const END_LIMIT: Duration = Duration::from_secs(45);

pub(super) async fn run(
    options: &Options,
    queues: Vec<Queue>,
    diary: &Diary,
    stop: Stop,
    mut freezes: Signal,
) -> Result<()> {
    tokio::spawn(async move {
        while freezes.recv().await.is_some() {
            freeze_with_a_batch();
        }
    });
    let too_long = async |mut stop: Stop| {
        super::stopped(&mut stop).await;
        tokio::time::sleep(END_LIMIT).await;
    };
    tokio::select! {
        moved = change(options, queues, stop.clone()) => moved,
        () = too_long(stop) => {
            let what = format!("the change of the partitions does not end in {END_LIMIT:?}");
            let queue = PARTITIONED.to_owned();
            diary.write(&Event::Broken { queue, what });
            Ok(())
        }
    }
}

async fn change(options: &Options, queues: Vec<Queue>, mut stop: Stop) -> Result<()> {
    let queue = queues.iter().find(|queue| is_partitioned(queue.name()));
    let mut mover = Mover {
        queue: queue.context("no queue with partitions")?,
        most: options.partitions,
        rng: Rng::with_seed(options.seed ^ hash(options.name.as_bytes())),
    };
    loop {
        let is_over = *stop.borrow();
        match mover.step(is_over).await {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "a change failed"),
        }
        let pause = Duration::from_millis(mover.rng.u64(PAUSE_MS));
        tokio::select! {
            () = super::stopped(&mut stop), if !is_over => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

struct Mover<'a> {
    queue: &'a Queue,
    /// The largest number of partitions.
    most: usize,
    rng: Rng,
}

impl Mover<'_> {
    /// Makes a change, or joins the one that runs. If the run is over, it begins none: `true` if
    /// none runs any more.
    async fn step(&mut self, is_over: bool) -> Result<bool, Error> {
        let found = self.queue.partitions().await?;
        let runs = found.iter().any(|one| one.joins || one.leaves);
        let staying = found.iter().filter(|one| !one.leaves).count();
        if is_over && !runs {
            return Ok(true);
        }
        let few = (self.most * 5).div_ceil(12);
        let count = match staying {
            _ if runs => staying,
            many if many == self.most => *self.rng.choice(&[few, 1]).unwrap_or(&few),
            _ => self.most,
        };
        let change = self.queue.partition_into(count).without_rests();
        if is_over || self.rng.u32(0..ABORTED) > 0 {
            change.await?;
            return Ok(false);
        }
        let given_up = Duration::from_millis(self.rng.u64(ABORT_MS));
        match tokio::time::timeout(given_up, change.into_future()).await {
            Ok(changed) => changed?,
            Err(_) => self.queue.abort_repartition().without_rests().await?,
        }
        Ok(false)
    }
}
