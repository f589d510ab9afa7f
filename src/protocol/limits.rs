//! The ranges of names, ids, payloads and times, with one function that checks each. The scripts
//! check the same ranges.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::error::Error;
use crate::model::due::{Due, MAX_DELAY_MS, ceil_ms};
use crate::model::push_rules::OnConflict;
use crate::model::push_rules::Uniqueness;
use crate::model::push_rules::{Expires, OnExpire};

/// The longest name of a queue, in bytes.
pub(crate) const MAX_QUEUE_NAME_BYTES: usize = 128;
/// The longest id of a message, in bytes.
pub(crate) const MAX_ID_BYTES: usize = 200;
/// The largest payload that any queue can be configured for, in bytes.
pub(crate) const MAX_PAYLOAD_BYTES: usize = 16 * 1024 * 1024;
/// The error code for a payload above the limit of its queue, or above the limit of all queues.
pub(crate) const TOO_LARGE: &str = "TOO_LARGE";
/// The longest lease, in milliseconds: a day.
pub(crate) const MAX_LEASE_MS: u64 = 86_400_000;
/// The longest window of a push, in milliseconds: 30 days.
const MAX_WINDOW_MS: u64 = 2_592_000_000;

/// Checks a queue's name: 1 to 128 bytes, no control characters, none of `/ { }`.
pub(crate) fn check_queue_name(name: &str) -> Result<(), Error> {
    let reason = if name.is_empty() {
        "it is empty".to_owned()
    } else if name.len() > MAX_QUEUE_NAME_BYTES {
        format!("it has {} bytes", name.len())
    } else if let Some(bad) = name
        .chars()
        .find(|&c| c.is_ascii_control() || matches!(c, '/' | '{' | '}'))
    {
        format!("it holds {bad:?}")
    } else {
        return Ok(());
    };
    Err(Error::invalid(format!(
        "queue name {:?}: {reason}; a name has 1 to {MAX_QUEUE_NAME_BYTES} bytes, no control characters and none of / {{ }}",
        shortened(name)
    )))
}

/// Checks a message's id: 1 to 200 bytes, no control bytes.
pub(crate) fn check_id(id: &[u8]) -> Result<(), Error> {
    let reason = if id.is_empty() {
        "it is empty"
    } else if id.len() > MAX_ID_BYTES {
        "it is too long"
    } else if id.iter().any(u8::is_ascii_control) {
        "it holds a control byte"
    } else {
        return Ok(());
    };
    Err(Error::invalid(format!(
        "message id {:?}: {reason}; an id has 1 to {MAX_ID_BYTES} bytes, none of them a control byte",
        shortened(&String::from_utf8_lossy(id))
    )))
}

/// Refuses a payload above 16 MiB, the most that any queue can allow. The script checks the queue's
/// own limit.
pub(crate) fn check_payload(payload: &[u8]) -> Result<(), Error> {
    if payload.len() > MAX_PAYLOAD_BYTES {
        return Err(Error::invalid(format!(
            "the payload has {} bytes, no queue takes more than {MAX_PAYLOAD_BYTES}",
            payload.len()
        ))
        .with_code(TOO_LARGE));
    }
    Ok(())
}

/// Refuses a limit of attempts outside 1 to 1,000,000.
pub(crate) fn check_max_attempts(max_attempts: u32) -> Result<(), Error> {
    if !(1..=1_000_000).contains(&max_attempts) {
        return Err(Error::invalid(format!(
            "max_attempts is {max_attempts}, it must be 1 to 1000000"
        )));
    }
    Ok(())
}

/// Refuses an expiry that no push accepts. The server, which has the clock, checks an expiry at a
/// fixed time.
pub(crate) fn check_expiry(expires: Option<Expires>, on_expire: OnExpire) -> Result<(), Error> {
    match expires {
        Some(Expires::AfterMs(ms)) if !(1..=MAX_DELAY_MS).contains(&ms) => Err(Error::invalid(
            format!("expires_after is {ms} ms, it must be 1 to {MAX_DELAY_MS} (100 years)"),
        )),
        None if on_expire != OnExpire::Dead => Err(Error::invalid(
            "on_expire is set and the message does not expire: set expires_after or expires_at too",
        )),
        _ => Ok(()),
    }
}

/// Refuses a cost outside 1 to 1,000,000. The script refuses a cost above the queue's burst.
pub(crate) fn check_cost(cost: u32) -> Result<(), Error> {
    if !(1..=1_000_000).contains(&cost) {
        return Err(Error::invalid(format!(
            "cost is {cost}, it must be 1 to 1000000, and at most the burst of the queue's rate"
        )));
    }
    Ok(())
}

/// Refuses a window, a `max_wait` or a `revive` that no push accepts. `due` is the due time of the
/// message. The server, which has the clock, compares a fixed due time with `max_wait`.
pub(crate) fn check_uniqueness(
    unique: Uniqueness,
    on_conflict: OnConflict,
    due: Due,
) -> Result<(), Error> {
    let Uniqueness {
        window_ms,
        max_wait_ms,
        revive,
        ..
    } = unique;
    if let Some(ms) = window_ms
        && !(1..=MAX_WINDOW_MS).contains(&ms)
    {
        return Err(Error::invalid(format!(
            "window is {ms} ms, it must be 1 to {MAX_WINDOW_MS} (30 days)"
        )));
    }
    if let Some(ms) = max_wait_ms {
        if !(1..=MAX_DELAY_MS).contains(&ms) {
            return Err(Error::invalid(format!(
                "max_wait is {ms} ms, it must be 1 to {MAX_DELAY_MS} (100 years)"
            )));
        }
        if on_conflict == OnConflict::Keep {
            return Err(Error::invalid(
                "max_wait is set and a waiting message is kept: set on_conflict to reschedule, replace or next",
            ));
        }
        if let Due::AfterMs(delay) = due
            && delay > ms
        {
            return Err(Error::invalid(format!(
                "max_wait is {ms} ms and the delay {delay} ms: max_wait must be at least the delay"
            )));
        }
    }
    if revive && !matches!(on_conflict, OnConflict::Replace | OnConflict::Next) {
        return Err(Error::invalid(
            "revive is set and a dead message is not replaced: set on_conflict to replace or next",
        ));
    }
    Ok(())
}

/// Refuses all but a `traceparent` of W3C Trace Context, version 00: `00-<32 hex>-<16 hex>-<2 hex>`
/// in lower case, neither id all zero.
pub(crate) fn check_trace_parent(text: &str) -> Result<(), Error> {
    let hex = |part: &str, digits: usize| {
        part.len() == digits
            && part
                .bytes()
                .all(|byte| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f'))
    };
    let id = |part: &str, digits: usize| hex(part, digits) && part.bytes().any(|byte| byte != b'0');
    match text.split('-').collect::<Vec<_>>()[..] {
        ["00", trace, span, flags] if id(trace, 32) && id(span, 16) && hex(flags, 2) => Ok(()),
        _ => Err(Error::invalid(format!(
            "trace parent {:?}: it must be 00-TRACE-SPAN-FLAGS with 32, 16 and 2 hexadecimal digits in lower case, trace and \
             span not all zero",
            shortened(text)
        ))),
    }
}

/// Converts a lease to milliseconds, rounded up. Refuses one below 1 ms or above a day.
pub(crate) fn lease_ms(lease: Duration) -> Result<u64, Error> {
    match ceil_ms(lease) {
        ms @ 1..=MAX_LEASE_MS => Ok(ms),
        _ => Err(Error::invalid(format!(
            "the lease of {lease:?} is not within 1 ms and a day"
        ))),
    }
}

/// The range of the time for which a node may be silent about a queue.
pub(crate) const PARK: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(60);

/// Converts the time for which a node parks to milliseconds, limited to the range that a beat
/// accepts.
pub(crate) fn park_ms(time: Duration) -> u64 {
    ceil_ms(time.clamp(*PARK.start(), *PARK.end()))
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= 60 {
        text.to_owned()
    } else {
        text.chars().take(60).chain(['…']).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_names_are_accepted_up_to_each_limit_only() {
        for good in [
            "a",
            "orders",
            "Bestellungen für morgen",
            "a:b",
            &"x".repeat(128),
        ] {
            assert!(check_queue_name(good).is_ok(), "{good}");
        }
        for bad in ["", "a/b", "a{b", "a}b", "a\nb", "a\0b", &"x".repeat(129)] {
            assert!(check_queue_name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn ids_are_accepted_up_to_each_limit_only() {
        for good in [
            &b"order:42"[..],
            b"with space",
            "emoji \u{1f600}".as_bytes(),
            b"\xff\xfe",
            &[b'x'; 200],
        ] {
            assert!(check_id(good).is_ok(), "{good:?}");
        }
        for bad in [&b""[..], b"\0", b"a\nb", b"\x7f", &[b'x'; 201]] {
            assert!(check_id(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn only_well_formed_trace_parents_are_accepted() {
        let (trace, span) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
        for flags in ["00", "01", "ff"] {
            assert!(
                check_trace_parent(&format!("00-{trace}-{span}-{flags}")).is_ok(),
                "{flags}"
            );
        }
        let (no_trace, no_span) = ("0".repeat(32), "0".repeat(16));
        for bad in [
            String::new(),
            format!("{trace}-{span}-01"),
            format!("01-{trace}-{span}-01"),
            format!("ff-{trace}-{span}-01"),
            format!("00-{no_trace}-{span}-01"),
            format!("00-{trace}-{no_span}-01"),
            format!("00-{}-{span}-01", trace.to_uppercase()),
            format!("00-{trace}0-{span}-01"),
            format!("00-{}-{span}-01", &trace[1..]),
            format!("00-{trace}-{span}-1"),
            format!("00-{trace}-{span}-0g"),
            format!("00-{trace}-{span}-01-00"),
            format!(" 00-{trace}-{span}-01"),
            format!("00-{trace}-{span}-01 reuse"),
            format!("00-{trace}-{span}-01\n"),
        ] {
            assert!(check_trace_parent(&bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn uniqueness_options_are_accepted_up_to_each_limit_only() {
        use OnConflict::{Keep, Next, Replace, Reschedule};
        let check = |unique, on_conflict| check_uniqueness(unique, on_conflict, Due::AfterMs(10));
        let window = |ms| Uniqueness {
            window_ms: Some(ms),
            ..Uniqueness::default()
        };
        let max_wait = |ms| Uniqueness {
            max_wait_ms: Some(ms),
            ..Uniqueness::default()
        };
        let revive = Uniqueness {
            revive: true,
            ..Uniqueness::default()
        };
        for (unique, on_conflict) in [
            (window(1), Keep),
            (window(MAX_WINDOW_MS), Next),
            (max_wait(10), Reschedule),
            (max_wait(MAX_DELAY_MS), Replace),
            (revive, Replace),
            (revive, Next),
        ] {
            assert!(check(unique, on_conflict).is_ok(), "{unique:?}");
        }
        for (unique, on_conflict, problem) in [
            (window(0), Keep, "window is 0 ms"),
            (window(MAX_WINDOW_MS + 1), Keep, "30 days"),
            (max_wait(0), Replace, "max_wait is 0 ms"),
            (max_wait(MAX_DELAY_MS + 1), Replace, "100 years"),
            (max_wait(9), Replace, "at least the delay"),
            (max_wait(10), Keep, "reschedule, replace or next"),
            (revive, Keep, "replace or next"),
            (revive, Reschedule, "replace or next"),
        ] {
            let error = check(unique, on_conflict).expect_err(problem);
            assert!(error.to_string().contains(problem), "{error}");
        }
    }

    #[test]
    fn leases_are_accepted_up_to_each_limit_only() {
        assert_eq!(lease_ms(Duration::from_nanos(1)).expect("rounded up"), 1);
        assert_eq!(
            lease_ms(Duration::from_millis(MAX_LEASE_MS)).expect("a day"),
            MAX_LEASE_MS
        );
        assert!(lease_ms(Duration::ZERO).is_err());
        assert!(lease_ms(Duration::from_millis(MAX_LEASE_MS + 1)).is_err());
    }
}
