//! Spreads the due times of many messages over a window, by their ids.

use crate::error::Error;
use crate::model::due::{Due, MAX_DELAY_MS};
use crate::protocol::partition_map::crc32;

/// The due time of the message with this id: up to `window_ms` after `due`, never before it.
///
/// It depends on the id alone, so that a repeated push asks for the same due time.
pub(crate) fn spread(due: Due, window_ms: u64, id: &[u8]) -> Due {
    let number = u64::from(crc32(&[b"spread", id].concat()));
    let later = number % window_ms.saturating_add(1);
    match due {
        Due::AfterMs(ms) => Due::AfterMs(ms.saturating_add(later)),
        Due::AtMs(ms) => Due::AtMs(ms.saturating_add(later)),
    }
}

/// Refuses a window above 100 years, and one that ends more than 100 years from now. The server,
/// which has the clock, makes the second check for a fixed due time.
pub(crate) fn check(due: Due, window_ms: u64) -> Result<(), Error> {
    let delay = match due {
        Due::AfterMs(ms) => ms,
        Due::AtMs(_) => 0,
    };
    if window_ms > 0 && delay.saturating_add(window_ms) > MAX_DELAY_MS {
        return Err(Error::invalid(format!(
            "a delay of {delay} ms spread over {window_ms} ms can end after more than 100 years \
             ({MAX_DELAY_MS} ms): shorten the delay or the window"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn later(window_ms: u64, id: &str) -> u64 {
        match spread(Due::AfterMs(1_000), window_ms, id.as_bytes()) {
            Due::AfterMs(ms) => ms - 1_000,
            Due::AtMs(_) => panic!("a delay stays a delay"),
        }
    }

    #[test]
    fn the_offset_is_the_crc_of_the_prefixed_id() {
        // zlib's crc32(b"spreadorder:42") is 10,839,400.
        assert_eq!(later(30_000, "order:42"), 10_839_400 % 30_001);
        assert_eq!(later(u64::MAX, "order:42"), 10_839_400);
        let moment = spread(Due::AtMs(7), 30_000, b"order:42");
        assert_eq!(moment, Due::AtMs(7 + 10_839_400 % 30_001));
    }

    #[test]
    fn without_a_spread_the_due_time_is_unchanged() {
        for due in [Due::AfterMs(0), Due::AfterMs(u64::MAX), Due::AtMs(u64::MAX)] {
            assert_eq!(spread(due, 0, b"order:42"), due);
            check(due, 0).expect("no window");
        }
    }

    #[test]
    fn spread_offsets_cover_0_to_the_spread_time() {
        let mut tenths = [0; 10];
        for n in 0..10_000 {
            let later = later(999, &format!("order:{n}"));
            assert!(later <= 999, "{later}");
            tenths[later as usize / 100] += 1;
        }
        let even = |count: &i32| (900..=1_100).contains(count);
        assert!(tenths.iter().all(even), "{tenths:?}");
    }

    #[test]
    fn windows_that_can_end_after_a_hundred_years_are_refused() {
        for (due, window_ms, fits) in [
            (Due::AfterMs(0), MAX_DELAY_MS, true),
            (Due::AfterMs(1), MAX_DELAY_MS, false),
            (Due::AfterMs(MAX_DELAY_MS), 1, false),
            (Due::AtMs(u64::MAX), MAX_DELAY_MS, true),
            (Due::AtMs(0), MAX_DELAY_MS + 1, false),
            (Due::AfterMs(u64::MAX), u64::MAX, false),
        ] {
            assert_eq!(check(due, window_ms).is_ok(), fits, "{due:?} {window_ms}");
        }
    }
}
