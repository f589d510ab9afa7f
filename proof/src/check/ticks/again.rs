//! Ticks that end or come again without a call that names them.

use super::*;
use crate::check::excuses::UNDER_WAY_US;

impl Hypothesis {
    /// A later tick of the same schedule may have removed it while it waited.
    pub(in crate::check) fn may_be_replaced(&self, record: &Record, context: &Context<'_>) -> bool {
        let Some(tick) = context.tick.filter(|_| self.is_waiting()) else {
            return false;
        };
        let is_later = |(epoch, seq): &&(u16, u64)| {
            *epoch == record.epoch
                && self.seq < *seq
                && *seq <= record.seq()
                && !context.epoch.is_void(*seq)
        };
        !tick.replaced_by.is_empty()
            && (tick.replaced_by.iter().any(|birth| is_later(&birth))
                || !context.epoch.gaps(self.seq, record.seq()).is_empty())
    }

    /// The same id once more, if a correct queue may make it.
    pub(in crate::check) fn made_again(
        &self,
        record: &Record,
        context: &Context<'_>,
    ) -> Option<Self> {
        let tick = context.tick.filter(|_| !self.is_there())?;
        let first = context.records.first().map_or(0, Record::seq);
        let never = self.status == Status::Absent(Gone::NeverPushed);
        // A settlement with a token that a failover voided came before the claim that makes it.
        let undone = context.epoch.undone_before(record.seq());
        if never && !undone {
            let life = self.made_anew(&tick, record);
            if tick.was_not_due(record, context) {
                return Some(life);
            }
            return tick.made_by_hand(life, record, context);
        }
        let may = match tick.again {
            _ if never => true,
            Again::Never => false,
            Again::AfterStep => context.epoch.stepped(first, record.seq()),
            Again::Once => true,
        };
        (may && self.status != Status::Absent(Gone::Vanished))
            .then(|| self.made_anew(&tick, record))
    }

    fn made_anew(&self, tick: &Tick<'_>, record: &Record) -> Self {
        let mut life = tick.start;
        (life.used, life.hidden, life.chain) = (self.used, self.hidden, self.chain);
        (life.swept, life.expired) = (self.swept, self.expired);
        (life.seq, life.now_ms) = (self.seq, self.now_ms);
        // The schedule, or a new one of its name, may have another payload since.
        if let (
            Again::Once | Again::AfterStep,
            What::Claim {
                version,
                bytes,
                options,
                expiry,
                ..
            },
        ) = (tick.again, record.what)
        {
            life.version = u16::try_from(version).unwrap_or(u16::MAX);
            (life.bytes, life.options, life.expiry) = (bytes, options, expiry);
        }
        life
    }
}

impl Tick<'_> {
    /// The clock had gone back before its schedule: stale tokens of an emptied store found no such
    /// tick because it was not due yet.
    fn was_not_due(&self, record: &Record, context: &Context<'_>) -> bool {
        let earlier = context.records.iter().take_while(|other| *other != record);
        let mut earlier = earlier.filter(|other| other.epoch == record.epoch);
        earlier.all(|other| other.now() < self.start.not_before_ms)
    }

    /// A stale token of an emptied store found no such tick, and then a trigger made it: its answer
    /// tells that, or it got none and may have made a missing change.
    fn made_by_hand(
        &self,
        life: Hypothesis,
        record: &Record,
        context: &Context<'_>,
    ) -> Option<Hypothesis> {
        // No answer since then showed that there was none.
        let is_possible = |life: &Hypothesis| {
            let records = context.records.iter();
            let mut since = records
                .take_while(|other| *other != record)
                .filter(|other| life.seq <= other.seq());
            since.all(|other| life.allows(other, context).is_ok())
        };
        let made = self.by_hand.iter().filter_map(|call| match *call {
            ByHand::Made { epoch, seq, now_ms } => {
                let mut life = life;
                life.wait_until(now_ms);
                (life.seq, life.now_ms) = (seq, now_ms);
                let is_before = epoch == record.epoch && seq <= record.seq();
                (is_before && !context.epoch.is_void(seq)).then_some(life)
            }
            ByHand::Perhaps { .. } => None,
        });
        // The latest one found that the earlier ones were gone.
        let made = made.max_by_key(|life| life.seq).filter(is_possible);
        let perhaps = || {
            let stepped = context.epoch.stepped(life.seq, record.seq());
            let gaps = context.epoch.gaps(life.seq, record.seq()).iter();
            let mut lives = gaps.filter_map(|gap| {
                let mut life = life;
                // A clock that has gone back since gives no bound.
                let after_ms = if stepped { 0 } else { gap.after_ms };
                life.wait_at_least(life.not_before_ms.max(after_ms));
                (life.seq, life.now_ms) = (gap.seq, after_ms);
                let mut calls = self.by_hand.iter();
                let fits = calls.any(|call| match *call {
                    ByHand::Made { .. } => false,
                    ByHand::Perhaps { asked_us } => gap.fits(asked_us, asked_us + UNDER_WAY_US),
                });
                fits.then_some(life)
            });
            lives.find(is_possible)
        };
        made.or_else(perhaps)
    }
}
