//! The life of a message as a line of times, as far as it is known.

use crate::dashboard::show::{self, Clock, Markup};
use crate::dashboard::views::message::Message;

const NOW: &str = "Now";

/// A time in the life of a message.
pub(super) struct Moment {
    pub(super) what: String,
    pub(super) time: Markup,
    /// `past`, `now` or `ahead`.
    pub(super) class: &'static str,
}

/// The known times, the earliest first, and the present one among them.
pub(super) fn moments(message: &Message, clock: &Clock) -> Vec<Moment> {
    let now_ms = clock.now_ms();
    let is_past = |ms: Option<u64>| ms.is_some_and(|ms| ms <= now_ms);
    let expiry = match message.on_expire.as_str() {
        "drop" => "It expires, and is dropped",
        _ => "It expires, and is dead then",
    };
    let due = if is_past(message.due_ms) {
        "It was due"
    } else {
        "It is due"
    };
    let times = [
        (message.due_ms, due),
        (message.leased_until_ms, "The lease of its handler ends"),
        (message.died_ms, "It died"),
        (message.expires_at_ms, expiry),
        (message.due_by_ms, "Pushes can postpone it until then"),
        (message.next_due_ms, "The message that follows it is due"),
    ];
    let known = times
        .into_iter()
        .filter_map(|(ms, what)| Some((ms?, what.to_owned())));
    let mut known: Vec<_> = known.collect();
    known.push((now_ms, NOW.to_owned()));
    known.sort_by_key(|(ms, _)| *ms);
    let moment = |(ms, what): (u64, String)| match what.as_str() {
        NOW => Moment {
            what: format!("{NOW}, {}", clock.absolute(ms)),
            time: Markup::default(),
            class: "now",
        },
        _ => Moment {
            time: clock.time(ms),
            class: if ms <= now_ms { "past" } else { "ahead" },
            what,
        },
    };
    let mut moments: Vec<_> = known.into_iter().map(moment).collect();
    if let (Some(after), None) = (message.expires_after_ms, message.expires_at_ms) {
        moments.push(Moment {
            what: format!("{}, {} after it is due", expiry, show::duration(after)),
            time: Markup::default(),
            class: "ahead",
        });
    }
    moments
}
