//! The calls that declare a set of schedules. Each call does a bounded part of the work.

use std::sync::Arc;

use crate::error::{Applied, Error};
use crate::model::schedule::{Schedule, ScheduleChanges, ScheduleInfo, listed_fires, option_words};
use crate::partition::{Partition, list_length};
use crate::protocol::counts::{DECLARE, DECLARE_FIRES};
use crate::protocol::replies::Reply;
use crate::protocol::results::schedules::Declared;
use crate::protocol::verbs::Verb;
use crate::server::patience::Repeat;
use crate::telemetry::metrics::Counter;

/// The most bytes of fires in one call.
const PIECE_BYTES: usize = 24_576;
/// How many fires the lists of one apply have together, unless each list has only the minimum.
const FIRES_OF_APPLY: usize = DECLARE * DECLARE_FIRES;

type Item = [Vec<u8>; 6];

/// The declaration of a set: see [`ScheduleSet`](crate::schedules::ScheduleSet).
pub(super) struct Declaration {
    pub(super) home: Arc<Partition>,
    pub(super) set: String,
    pub(super) revision: Option<u64>,
    pub(super) prune: bool,
    pub(super) forget: bool,
    pub(super) fire_now: bool,
    pub(super) dry_run: bool,
    pub(super) recompute: bool,
}

impl Declaration {
    pub(super) async fn apply(self, schedules: Vec<Schedule>) -> Result<ScheduleChanges, Error> {
        let now_ms = self.now_ms().await?;
        let encoding = tokio::task::spawn_blocking(move || encode(&schedules, now_ms));
        let items = match encoding.await {
            Ok(encoded) => encoded?,
            Err(failed) => std::panic::resume_unwind(failed.into_panic()),
        };
        let pieces = pieces(&items);
        let mut declared = Declared::new(&self.set, self.revision);
        if let [] | [_] = pieces[..] {
            // One call declares all schedules. Further calls follow if it leaves schedules to
            // remove.
            let mut more =
                declared.take(&items, self.call(&items, self.prune, self.dry_run).await?)?;
            declared.judge()?;
            while more && !self.dry_run {
                more = self.prune_some(&items, &mut declared).await?;
            }
        } else {
            for piece in &pieces {
                declared.take(piece, self.call(piece, false, true).await?)?;
            }
            declared.judge()?;
            if !self.dry_run {
                declared = Declared::new(&self.set, self.revision);
                for (index, piece) in pieces.iter().enumerate() {
                    let reply = self.call(piece, false, false).await;
                    let taken = reply.and_then(|reply| declared.take(piece, reply));
                    let taken = taken.and_then(|_| declared.judge());
                    taken.map_err(|error| partly(index, &error))?;
                }
            }
            let mut more = self.prune;
            while more {
                more = self.prune_some(&items, &mut declared).await? && !self.dry_run;
            }
        }
        let changes = declared.changes;
        if self.fire_now && !self.dry_run {
            let created = changes.created.len() as u64;
            self.home.meters().add_many(Counter::Triggered, created);
        }
        Ok(changes)
    }

    /// Declares a stored schedule again, unchanged.
    pub(super) async fn again(self, info: &ScheduleInfo) -> Result<(), Error> {
        let fires = match info.schedule.is_cron() {
            true => listed_fires(&info.schedule, self.now_ms().await?, DECLARE_FIRES)?.encode(),
            false => String::new(),
        };
        let words = info
            .spec
            .split(' ')
            .filter(|word| !word.starts_with("set="));
        let items = [[
            info.name.clone().into_bytes(),
            words.collect::<Vec<_>>().join(" ").into_bytes(),
            info.pattern.clone().into_bytes(),
            info.options().into_bytes(),
            fires.into_bytes(),
            info.payload().to_vec(),
        ]];
        let mut declared = Declared::new(&self.set, None);
        declared.take(&items, self.call(&items, false, false).await?)?;
        declared.judge()
    }

    /// The server's clock, from which on fires are listed.
    async fn now_ms(&self) -> Result<u64, Error> {
        let args: [&[u8]; 3] = [b"", b"1", b""];
        let called = self.home.call(Verb::Schedules, &args, Repeat::Harmless);
        let now_us = called.await.map_err(Error::of_read)?.header.now_us;
        Ok(u64::try_from(now_us / 1_000).unwrap_or(0))
    }

    /// Removes some schedules of the set that the declaration omits. Returns whether others are
    /// left to remove.
    async fn prune_some(&self, items: &[Item], declared: &mut Declared<'_>) -> Result<bool, Error> {
        let names = items.iter().map(|[name, ..]| {
            let [a, b, c, d, e]: [Vec<u8>; 5] = Default::default();
            [name.clone(), a, b, c, d, e]
        });
        let names: Vec<Item> = names.collect();
        let reply = self.call(&names, self.prune, self.dry_run).await?;
        declared.take_removed(reply)
    }

    async fn call(&self, items: &[Item], prune: bool, dry_run: bool) -> Result<Reply, Error> {
        let words = [
            (prune, "prune"),
            (self.forget, "forget"),
            (self.fire_now, "now"),
            (dry_run, "dry_run"),
            (self.recompute, "recompute"),
        ];
        let words = words.iter().filter(|(asked, _)| *asked);
        let words: Vec<_> = words.map(|(_, word)| *word).collect();
        let words = words.join(" ");
        let revision = self.revision.map(|revision| revision.to_string());
        let revision = revision.unwrap_or_default();
        let mut args = vec![self.set.as_bytes(), revision.as_bytes(), words.as_bytes()];
        args.extend(items.iter().flatten().map(Vec::as_slice));
        self.home
            .call(Verb::Schedule, &args, Repeat::Harmless)
            .await
    }
}

/// The error of a call that failed after earlier calls had changed something.
fn partly(calls: usize, error: &Error) -> Error {
    if calls == 0 {
        return error.clone();
    }
    let declared = calls * DECLARE;
    let message =
        format!("up to {declared} schedules were declared, and then: {error}; repeat the apply");
    let partly = Error::new(error.kind(), Applied::Unknown, message);
    match error.code() {
        Some(code) => partly.with_code(code),
        None => partly,
    }
}

/// Splits the schedules into parts that each fit one call.
fn pieces(items: &[Item]) -> Vec<&[Item]> {
    let (mut pieces, mut rest) = (Vec::new(), items);
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = rest.iter().take(DECLARE).take_while(|[.., fires, _]| {
            bytes += fires.len();
            bytes <= PIECE_BYTES
        });
        let (piece, others) = rest.split_at(fits.count().max(1));
        pieces.push(piece);
        rest = others;
    }
    pieces
}

/// Encodes these schedules as arguments of the script.
fn encode(schedules: &[Schedule], now_ms: u64) -> Result<Vec<Item>, Error> {
    let crons = schedules
        .iter()
        .filter(|schedule| schedule.is_cron())
        .count();
    let fires = (FIRES_OF_APPLY / crons.max(1)).max(DECLARE_FIRES);
    let fires = fires.min(list_length());
    let items = schedules
        .iter()
        .map(|schedule| encode_one(schedule, now_ms, fires).map_err(|error| of(schedule, &error)));
    items.collect()
}

fn encode_one(schedule: &Schedule, now_ms: u64, fires: usize) -> Result<Item, Error> {
    schedule.check_at(now_ms)?;
    let zone = schedule.zone_name()?;
    let fires = match schedule.is_cron() {
        true => listed_fires(schedule, now_ms, fires)?.encode(),
        false => String::new(),
    };
    Ok([
        schedule.name.clone().into_bytes(),
        schedule.spec_words(zone.as_deref()).into_bytes(),
        schedule.pattern().into(),
        option_words(schedule).into_bytes(),
        fires.into_bytes(),
        schedule.payload.clone(),
    ])
}

/// The error about one schedule.
pub(super) fn of(schedule: &Schedule, error: &Error) -> Error {
    let message = format!("schedule {:?}: {error}", schedule.name);
    let refused = vec![(schedule.name.clone(), error.to_string())];
    Error::new(error.kind(), error.was_applied(), message).of_schedules(refused)
}
