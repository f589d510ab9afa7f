//! How the exit status of a command settles its delivery.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use dueq::Settlement;

/// The exit code for "no further attempt will help": EX_DATAERR of sysexits.h.
const BURY: i32 = 65;
pub(super) fn settlement(status: ExitStatus, stderr: &[u8]) -> Settlement {
    let said = String::from_utf8_lossy(stderr);
    let said = said.trim();
    let said = if said.is_empty() {
        String::new()
    } else {
        format!(": {said}")
    };
    match (status.code(), status.signal()) {
        (Some(0), _) => Settlement::Ack,
        (Some(BURY), _) => Settlement::bury(format!("exit status {BURY}{said}")),
        (Some(code), _) => Settlement::retry(format_args!("exit status {code}{said}")),
        (None, Some(signal)) => Settlement::retry(format_args!("killed by signal {signal}{said}")),
        (None, None) => Settlement::retry(format_args!("{status}{said}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_map_to_settlements() {
        let exit =
            |code: i32, said: &str| settlement(ExitStatus::from_raw(code << 8), said.as_bytes());
        assert_eq!(exit(0, "only a warning\n"), Settlement::Ack);
        assert_eq!(
            exit(65, "no such order\n"),
            Settlement::bury("exit status 65: no such order")
        );
        assert_eq!(exit(1, ""), Settlement::retry("exit status 1"));
        assert_eq!(
            exit(127, "sh: x: not found\n"),
            Settlement::retry("exit status 127: sh: x: not found")
        );
        assert_eq!(
            settlement(ExitStatus::from_raw(9), b""),
            Settlement::retry("killed by signal 9")
        );
    }
}
