//! Rates of a queue.

use std::time::Duration;

use super::check_error;
use crate::{rate as read, time};

/// `--rate`: an accepted rate is in its range, and its starts and window are the written ones; a
/// refusal gives its reason.
pub fn rate(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match read(text) {
        Ok(rate) => {
            assert!((1..=1_000_000).contains(&rate.starts), "{text:?}");
            assert!(rate.window <= Duration::from_secs(2_592_000), "{text:?}");
            assert!(rate.window > Duration::ZERO, "{text:?}");
            let (starts, window) = text.split_once('/').expect("two parts");
            assert_eq!(starts.trim().parse(), Ok(rate.starts), "{text:?}");
            let window = window.trim();
            // A window without a number is a unit.
            let whole = time::delay(window).or_else(|_| time::delay(&format!("1{window}")));
            assert_eq!(whole, Ok(rate.window), "{text:?}");
            let again = format!("{}/{:?}", rate.starts, rate.window);
            assert_eq!(read(&again), Ok(rate), "{text:?}");
        }
        Err(error) => check_error(&error),
    }
}
