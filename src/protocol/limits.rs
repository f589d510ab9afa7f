//! The ranges of names, ids, payloads and times: one validator for everybody on this side of the wire.
//! The scripts hold the same ranges on theirs.

use std::time::Duration;

use crate::due::ceil_ms;
use crate::error::Error;

/// The longest name of a queue, in bytes.
pub(crate) const MAX_QUEUE_NAME_BYTES: usize = 128;
/// The longest id of a message, in bytes.
pub(crate) const MAX_ID_BYTES: usize = 200;
/// The largest payload that any queue can be configured for, in bytes.
pub(crate) const MAX_PAYLOAD_BYTES: usize = 16 * 1024 * 1024;
/// The longest lease, in milliseconds: a day.
pub(crate) const MAX_LEASE_MS: u64 = 86_400_000;
/// How many items one script call takes at most.
pub(crate) const MAX_ITEMS: usize = 1_000;

/// A queue's name: 1 to 128 bytes, no control characters, none of `/ { }`.
pub(crate) fn check_queue_name(name: &str) -> Result<(), Error> {
    let reason = if name.is_empty() {
        "it is empty".to_owned()
    } else if name.len() > MAX_QUEUE_NAME_BYTES {
        format!("it has {} bytes", name.len())
    } else if let Some(bad) = name.chars().find(|&c| c.is_ascii_control() || matches!(c, '/' | '{' | '}')) {
        format!("it holds {bad:?}")
    } else {
        return Ok(());
    };
    Err(Error::invalid(format!(
        "queue name {:?}: {reason}; a name has 1 to {MAX_QUEUE_NAME_BYTES} bytes, no control characters and none of / {{ }}",
        shortened(name)
    )))
}

/// A message's id: 1 to 200 bytes, no control bytes.
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

/// A payload: what no queue can take is not even sent. The queue's own, lower limit is the script's to check.
pub(crate) fn check_payload(payload: &[u8]) -> Result<(), Error> {
    if payload.len() > MAX_PAYLOAD_BYTES {
        return Err(Error::invalid(format!(
            "the payload has {} bytes, no queue takes more than {MAX_PAYLOAD_BYTES}",
            payload.len()
        )));
    }
    Ok(())
}

/// A message's limit of attempts: 1 to 1,000,000.
pub(crate) fn check_max_attempts(max_attempts: u32) -> Result<(), Error> {
    if !(1..=1_000_000).contains(&max_attempts) {
        return Err(Error::invalid(format!("max_attempts is {max_attempts}, it must be 1 to 1000000")));
    }
    Ok(())
}

/// A lease: 1 ms to a day. In whole milliseconds, rounded up.
pub(crate) fn lease_ms(lease: Duration) -> Result<u64, Error> {
    match ceil_ms(lease) {
        ms @ 1..=MAX_LEASE_MS => Ok(ms),
        _ => Err(Error::invalid(format!("the lease of {lease:?} is not within 1 ms and a day"))),
    }
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= 60 { text.to_owned() } else { text.chars().take(60).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_names_at_and_beyond_every_limit() {
        for good in ["a", "orders", "Bestellungen für morgen", "a:b", &"x".repeat(128)] {
            assert!(check_queue_name(good).is_ok(), "{good}");
        }
        for bad in ["", "a/b", "a{b", "a}b", "a\nb", "a\0b", &"x".repeat(129)] {
            assert!(check_queue_name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn ids_at_and_beyond_every_limit() {
        for good in [&b"order:42"[..], b"with space", "emoji \u{1f600}".as_bytes(), b"\xff\xfe", &[b'x'; 200]] {
            assert!(check_id(good).is_ok(), "{good:?}");
        }
        for bad in [&b""[..], b"\0", b"a\nb", b"\x7f", &[b'x'; 201]] {
            assert!(check_id(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn leases_at_and_beyond_every_limit() {
        assert_eq!(lease_ms(Duration::from_nanos(1)).expect("rounded up"), 1);
        assert_eq!(lease_ms(Duration::from_millis(MAX_LEASE_MS)).expect("a day"), MAX_LEASE_MS);
        assert!(lease_ms(Duration::ZERO).is_err());
        assert!(lease_ms(Duration::from_millis(MAX_LEASE_MS + 1)).is_err());
    }
}
