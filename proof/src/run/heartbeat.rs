//! A thread that wakes every few ms, and records each late wake-up: a delay at that time is the
//! machine's fault, not the queue's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::log::Log;
use crate::history::{Event, now_us};

const BEAT: Duration = Duration::from_millis(20);
/// A delay that counts as a stall. Shorter ones are normal on a busy machine.
const STALL_US: u64 = 100_000;

/// The heartbeat; it beats until it is dropped.
pub struct Heartbeat {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Heartbeat {
    pub fn start(log: Arc<Log>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut last_us = now_us();
            while !stopped.load(Ordering::Relaxed) {
                std::thread::sleep(BEAT);
                let now_us = now_us();
                if let Some(late_us) = late_us(last_us, now_us) {
                    log.write(&Event::Stalled {
                        ms: late_us.div_ceil(1_000),
                    });
                }
                last_us = now_us;
            }
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// By how much a beat was late; `None` if that is not a stall.
fn late_us(last_us: u64, now_us: u64) -> Option<u64> {
    let beat_us = u64::try_from(BEAT.as_micros()).unwrap_or(0);
    now_us
        .checked_sub(last_us + beat_us)
        .filter(|late_us| *late_us >= STALL_US)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beat_that_comes_late_is_a_stall() {
        assert_eq!(late_us(1_000, 21_000), None);
        assert_eq!(late_us(1_000, 120_999), None);
        assert_eq!(late_us(1_000, 121_000), Some(100_000));
        assert_eq!(late_us(1_000, 900), None);
    }
}
