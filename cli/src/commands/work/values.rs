//! Reads the values of options.

use std::time::Duration;

use dueq_input::time;

/// Refuses an empty command, which would succeed and ack every message.
pub(super) fn not_blank(command: &str) -> Result<String, String> {
    match command.trim().is_empty() {
        true => Err("the command is empty: is its shell variable set?".to_owned()),
        false => Ok(command.to_owned()),
    }
}

/// Reads the size of a batch.
pub(super) fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("a batch has at least 1 message".to_owned()),
        Ok(size) => Ok(size),
        Err(_) => Err("not a number of messages".to_owned()),
    }
}

/// Reads a time limit. No handler could meet a limit of zero.
pub(super) fn limit(text: &str) -> Result<Duration, String> {
    match time::delay(text).map_err(|error| error.to_string())? {
        Duration::ZERO => {
            Err("the time must be above zero; leave the option out for the default".to_owned())
        }
        limit => Ok(limit),
    }
}
