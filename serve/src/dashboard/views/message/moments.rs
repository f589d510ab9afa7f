//! The moments in the life of a message.

use crate::dashboard::show;
use crate::dashboard::show::{Clock, Markup};
use crate::dashboard::undo::Undone;
use crate::wire::life::LifeEntry;
use crate::wire::messages::Message;

const NOW: &str = "Now";

/// An event in the life of a message.
pub(super) struct Moment {
    pub(super) what: String,
    pub(super) time: Markup,
    /// `past`, `now` or `ahead`.
    pub(super) class: &'static str,
}

/// The known events in order of time, with now among them.
pub(super) fn of(message: &Message, undone: Option<&Undone>, clock: &Clock) -> Vec<Moment> {
    let now_ms = clock.now_ms();
    let is_past = |ms: Option<u64>| ms.is_some_and(|ms| ms <= now_ms);
    let expiry = match message.on_expire.as_str() {
        "drop" => "It expires, and is dropped",
        _ => "It expires, and is dead then",
    };
    let due = if is_past(message.times.due_ms) {
        "It was due"
    } else {
        "It is due"
    };
    let times = [
        (message.times.due_ms, due),
        (message.since_ms, "A handler began"),
        (
            message.times.leased_until_ms,
            "The lease of its handler ends",
        ),
        (message.times.died_ms, "It died"),
        (message.expires_at_ms, expiry),
        (message.due_by_ms, "Pushes can postpone it until then"),
        (message.next_due_ms, "The message that follows it is due"),
    ];
    let known = times
        .into_iter()
        .filter_map(|(ms, what)| Some((ms?, what.to_owned())));
    let mut known: Vec<_> = known.collect();
    // Of the last cancel and its undo the server knows more: who it was. Its time of the cancel is
    // rounded up.
    let is_told = |event: &&LifeEntry| {
        let is_undo = matches!(&*event.what, "cancel" | "undo");
        !is_undo || undone.is_none_or(|undone| event.at_ms + 1 < undone.cancelled_ms)
    };
    let life = message.life.iter().filter(is_told);
    known.extend(life.map(|event| (event.at_ms, told(event))));
    if let Some(undone) = undone {
        let by = show::text(&undone.by);
        known.push((undone.cancelled_ms, format!("It was cancelled by {by}")));
        known.push((undone.undone_ms, "The cancel was undone".to_owned()));
    }
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

/// The events of a life that has ended.
pub(super) fn of_life(life: &[LifeEntry], clock: &Clock) -> Vec<Moment> {
    let moment = |event: &LifeEntry| Moment {
        what: told(event),
        time: clock.time(event.at_ms),
        class: "past",
    };
    life.iter().map(moment).collect()
}

/// An event of a life in words.
fn told(event: &LifeEntry) -> String {
    let what = match &*event.what {
        "push" => "It was pushed",
        "upsert" => "An upsert pushed it",
        "tick" => "A schedule made it",
        "undo" => "The cancel was undone",
        "next" => "It followed a message of its id",
        "reschedule" => "It was rescheduled",
        "run_now" => "It was made due",
        "requeue" => "It was requeued",
        "cancel" => "It was cancelled",
        "purge" => "It was purged",
        "expired" => "It expired",
        "ack" | "ack_push" => "A handler acked it",
        "retry" => "A handler failed",
        "again" => "A handler repeats it",
        "release" => "A worker gave it back",
        "snooze" => "A handler snoozed it",
        "throttle" => "A handler throttled the queue",
        "bury" => "It was buried",
        "crash" => "The lease of its handler ended",
        other => other,
    };
    let ran = event
        .ran_ms
        .map(|ms| format!(" after {}", show::duration(ms)));
    let node = event.node.as_ref().map(|node| format!(", worker …{node}"));
    let error = Some(&event.error).filter(|error| !error.is_empty());
    let error = error.map(|error| format!(": {error}"));
    let rest: String = [ran, node, error].into_iter().flatten().collect();
    show::text(&format!("{what}{rest}"))
}
