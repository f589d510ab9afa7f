//! The deduplication memory (the key `recent`): it recognises a repeated call after its message is
//! gone.

use crate::model::client::operation::Attempt;
use crate::model::consumers;
use crate::model::world::{Now, REPEAT_MS, World};
use crate::reply::Text;

/// The name under which `recent` remembers an id's end or move. A cancel is remembered under the id
/// itself.
fn about(id: &Text) -> Text {
    Text([&b"\x04"[..], &id.0].concat())
}

/// The score of a time in microseconds: milliseconds with a fraction.
fn ms(us: u64) -> f64 {
    format!("{}.{:03}", us / 1_000, us % 1_000)
        .parse()
        .expect("a number")
}

/// Whether a score still counts. One too far ahead was stored before the clock went back.
fn lasts(score: f64, now: Now) -> bool {
    score > now.floor() as f64 && score <= (now.ceil() + REPEAT_MS + 1) as f64
}

/// What `recent` remembers of the earlier tries of a call.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Earlier {
    None,
    /// `recent` remembers each message that the call created or found.
    Some,
    All,
}

/// The decision about a push of an absent id.
pub(crate) enum Verdict {
    New,
    Finished(String),
}

impl World {
    fn score(&self, name: &Text) -> Option<f64> {
        self.recent.get(name).copied()
    }

    pub(crate) fn earlier(&self, now: Now, attempt: Option<&Attempt>) -> Earlier {
        match attempt
            .and_then(|attempt| self.score(&attempt.call()))
            .filter(|score| lasts(*score, now))
        {
            None => Earlier::None,
            Some(score) if score.fract() > 0.0 => Earlier::Some,
            Some(_) => Earlier::All,
        }
    }

    /// When the id ended or moved to a near due time, if `recent` remembers it.
    fn ended(&self, now: Now, id: &Text) -> Option<f64> {
        self.score(&about(id))
            .filter(|score| self.ended_until > now.floor() && lasts(*score, now))
    }

    /// Whether an earlier try of this call created or found the id, or kept its next message.
    pub(crate) fn was_applied(
        &self,
        attempt: Option<&Attempt>,
        earlier: Earlier,
        id: &Text,
    ) -> bool {
        let itself = attempt.is_some_and(|attempt| self.score(&attempt.item(id)).is_some());
        earlier == Earlier::All || earlier == Earlier::Some && itself
    }

    pub(crate) fn judge(
        &self,
        now: Now,
        attempt: Option<&Attempt>,
        earlier: Earlier,
        id: &Text,
    ) -> Verdict {
        let Some(attempt) = attempt else {
            return Verdict::New;
        };
        if self.was_applied(Some(attempt), earlier, id) {
            return Verdict::Finished("FINISHED".to_owned());
        }
        let first_attempt = ms(attempt.until_us - 10_000_000);
        match self.ended(now, id).map(|score| score - REPEAT_MS as f64) {
            Some(ended) if ended > first_attempt + 0.0005 => {
                Verdict::Finished(format!("FINISHED {ended:.3}"))
            }
            _ => Verdict::New,
        }
    }

    /// Notes that a cancelled id is pushed again, so that the cancel counts for the former message
    /// only. Returns the number of added names.
    pub(crate) fn pushed_again(&mut self, now: Now, id: &Text) -> usize {
        let known = self.score(&about(id)).is_some() && self.ended_until > now.floor();
        let cancelled = self
            .score(id)
            .filter(|score| known && *score > now.floor() as f64 && score.fract() == 0.5);
        let Some(score) = cancelled else { return 0 };
        self.recent.insert(id.clone(), score.trunc() + 0.25);
        1
    }

    /// Notes that a tick is triggered again, as `pushed_again` does for other ids.
    pub(crate) fn made_again(&mut self, now: Now, id: &Text) {
        if let Some(score) = self.recent.get_mut(id)
            && *score > now.floor() as f64
            && score.fract() == 0.5
        {
            *score = score.trunc() + 0.25;
        }
    }

    /// Remembers the ids that this call created or found, for ids that a repetition could not
    /// recognise otherwise. Returns the number of added names.
    pub(crate) fn note_call(
        &mut self,
        attempt: &Attempt,
        whole: bool,
        earlier: Earlier,
        noted: &[Text],
    ) -> usize {
        let until = (attempt.until_us / 1_000) as f64;
        if noted.is_empty() || earlier == Earlier::All {
            return 0;
        }
        if whole {
            self.recent.insert(attempt.call(), until);
            return 1;
        }
        for id in noted {
            self.recent.insert(attempt.item(id), until);
        }
        self.recent.insert(attempt.call(), until + 0.5);
        noted.len() + 1
    }

    /// Notes that a message ended or moved to a near due time. A push whose first try was before
    /// that is a repetition.
    pub(crate) fn note_end(&mut self, now: Now, id: &Text) {
        let end = ms(now.0 + REPEAT_MS * 1_000);
        self.recent.insert(about(id), end);
        self.ended_until = self.ended_until.max(now.ceil() + REPEAT_MS + 1);
    }

    pub(crate) fn note_cancel(&mut self, now: Now, id: &Text) {
        self.recent
            .insert(id.clone(), (now.ceil() + REPEAT_MS) as f64 + 0.5);
        self.note_end(now, id);
    }

    /// Notes that another caller cancelled an absent id as well. An undo with the first cancel's
    /// time then fails. Returns whether it was another caller.
    pub(crate) fn note_later_cancel(&mut self, now: Now, id: &Text, since: Option<u64>) -> bool {
        let earlier = self.score(id).map_or(0, |score| score.trunc() as u64);
        if since.is_some_and(|since| earlier >= since + REPEAT_MS) {
            return false;
        }
        let until = (now.ceil() + 1 + REPEAT_MS) as f64 + 0.5;
        self.recent.insert(id.clone(), until);
        self.note_end(now, id);
        true
    }

    /// Whether `recent` holds the id itself, with a score of this fraction. A score too far ahead does
    /// not count; for release 0.1 that begins a millisecond earlier.
    fn is_remembered(&self, now: Now, id: &Text, fraction: f64) -> Option<f64> {
        let score = self.score(id).filter(|score| score.fract() == fraction)?;
        let ahead = REPEAT_MS + 2 - u64::from(self.is_frozen);
        let lasts = score > now.floor() as f64 && score <= (now.ceil() + ahead) as f64;
        lasts.then_some(score)
    }

    /// Whether the last message of this id was cancelled, or purged.
    pub(crate) fn was_cancelled(&self, now: Now, id: &Text) -> bool {
        self.is_remembered(now, id, 0.5).is_some()
    }

    /// Whether the id was cancelled at this time and nothing happened to it since.
    pub(crate) fn was_cancelled_at(&self, now: Now, id: &Text, ms: u64) -> bool {
        let mark = (ms + REPEAT_MS) as f64 + 0.5;
        self.score(id) == Some(mark) && mark > now.floor() as f64
    }

    /// Whether a message of this id was cancelled at `since` or later, and another message was
    /// pushed after that.
    pub(crate) fn was_cancelled_before_this_one(&self, now: Now, id: &Text, since: u64) -> bool {
        let again = self.is_remembered(now, id, 0.25);
        again.is_some_and(|score| score.trunc() as u64 >= since + REPEAT_MS)
    }

    /// Forgets up to `count` expired names, the oldest first.
    pub(crate) fn forget(&mut self, now: Now, count: usize) {
        let mut over: Vec<_> = self
            .recent
            .iter()
            .filter(|(_, score)| **score <= now.floor() as f64)
            .map(|(id, score)| (*score, id))
            .collect();
        over.sort_by(|(first, one), (second, other)| first.total_cmp(second).then(one.cmp(other)));
        let forgotten: Vec<Text> = over
            .into_iter()
            .take(count)
            .map(|(_, id)| id.clone())
            .collect();
        self.recent.retain(|id, _| !forgotten.contains(id));
    }

    /// Removes the oldest dead letters: those older than `dead_keep_ms` and those beyond
    /// `dead_keep`.
    pub(crate) fn trim_dead(&mut self, clock: u64) -> usize {
        let dead = self.listed("dead");
        let keep = self.limit("dead_keep").unwrap_or(100_000) as usize;
        let keep_ms = self.limit("dead_keep_ms").unwrap_or(2_592_000_000);
        let old = dead.iter().filter(|(at, _)| at + keep_ms <= clock).count();
        let over = dead
            .len()
            .saturating_sub(keep)
            .max(old)
            .min(consumers::TRIM);
        for (_, id) in &dead[..over] {
            self.messages.remove(id);
        }
        over
    }
}
