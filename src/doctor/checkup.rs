//! The report of an examination: findings, remarks and facts.

use crate::error::{Error, ErrorKind};

/// How many findings a checkup lists; further ones are only counted.
const MAX_LISTED: usize = 1_000;

/// The result of [`Client::examine`](crate::Client::examine) or
/// [`Queue::examine`](crate::Queue::examine).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checkup {
    /// The faults that were found; at most the first 1,000.
    pub findings: Vec<Finding>,
    /// How many faults were found beyond those in `findings`.
    pub more: u64,
    /// How many of the faults in `more` this checkup has repaired.
    pub more_repaired: u64,
    /// Facts that are no faults but may interest an operator, such as dead messages.
    pub remarks: Vec<Finding>,
    /// The checks that could not be made.
    pub unchecked: Vec<UncheckedPart>,
    /// Measured values, whether they are a fault or not. Their names do not change between
    /// releases.
    pub facts: Vec<(&'static str, String)>,
}

/// A fault of a server or a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// A word for this kind of finding, such as `eviction` or `doubled`. It does not change between
    /// releases.
    pub code: &'static str,
    /// The id, key, field or setting that is wrong.
    pub subject: Vec<u8>,
    /// A description of the fault.
    pub problem: String,
    /// The consequence of the fault.
    pub consequence: &'static str,
    /// The command that repairs the fault; without such a command, where to look. After a repair:
    /// what is left to do, or empty.
    pub remedy: String,
    /// Whether this checkup has repaired the fault.
    pub repaired: bool,
}

/// A check that could not be made.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UncheckedPart {
    /// The subject of the check.
    pub what: &'static str,
    /// Why the check could not be made: usually the server's error.
    pub why: String,
}

impl Checkup {
    pub(super) fn fact(&mut self, name: &'static str, value: impl ToString) {
        self.facts.push((name, value.to_string()));
    }

    pub(super) fn found(&mut self, finding: Finding) {
        if self.findings.len() < MAX_LISTED {
            self.findings.push(finding);
        } else {
            self.more += 1;
            self.more_repaired += u64::from(finding.repaired);
        }
    }

    /// Adds a finding that the doctor cannot repair itself, such as a setting of the server.
    pub(super) fn wrong(
        &mut self,
        code: &'static str,
        subject: &str,
        problem: String,
        consequence: &'static str,
        remedy: impl Into<String>,
    ) {
        self.found(Finding {
            code,
            subject: subject.as_bytes().to_vec(),
            problem,
            consequence,
            remedy: remedy.into(),
            repaired: false,
        });
    }

    /// Adds a fact that is no fault but may interest an operator.
    pub(super) fn remark(
        &mut self,
        code: &'static str,
        subject: &str,
        problem: String,
        consequence: &'static str,
        remedy: String,
    ) {
        self.remarks.push(Finding {
            code,
            subject: subject.as_bytes().to_vec(),
            problem,
            consequence,
            remedy,
            repaired: false,
        });
    }

    /// Ends the checkup after an error. If there are findings, above all repairs, the error is only
    /// noted, so that the findings are not lost. Otherwise the error is returned.
    pub(super) fn interrupted(&mut self, what: &'static str, error: Error) -> Result<(), Error> {
        if self.findings.is_empty() {
            return Err(error);
        }
        self.unchecked.push(UncheckedPart {
            what,
            why: error.to_string(),
        });
        Ok(())
    }

    /// Turns the error of a missing right into an unchecked part and `None`. Other errors are
    /// returned.
    pub(super) fn allowed<T>(
        &mut self,
        what: &'static str,
        answer: Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if is_denied(&error) => {
                self.unchecked.push(UncheckedPart {
                    what,
                    why: error.to_string(),
                });
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Whether the user lacks a right: for the call or for a command within the script.
pub(super) fn is_denied(error: &Error) -> bool {
    let text = error.to_string();
    match error.kind() {
        // But not a refused password.
        ErrorKind::Denied => matches!(error.code(), Some("NOPERM" | "ERR")),
        // Some hosting providers rename or remove CONFIG.
        ErrorKind::Server => text.contains("unknown command"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Applied;

    fn finding(repaired: bool) -> Finding {
        Finding {
            code: "hollow",
            subject: Vec::new(),
            problem: String::new(),
            consequence: "the message is lost",
            remedy: String::new(),
            repaired,
        }
    }

    #[test]
    fn findings_beyond_the_limit_are_counted() {
        let mut checkup = Checkup::default();
        for number in 0..MAX_LISTED + 10 {
            checkup.found(finding(number % 2 == 0));
        }
        assert_eq!(checkup.findings.len(), MAX_LISTED);
        assert_eq!((checkup.more, checkup.more_repaired), (10, 5));
    }

    #[test]
    fn an_error_does_not_discard_earlier_findings() {
        let lost = || {
            Error::new(
                ErrorKind::Unavailable,
                Applied::Unknown,
                "the connection was lost",
            )
        };
        let mut checkup = Checkup::default();
        assert!(
            checkup.interrupted("the rest", lost()).is_err(),
            "without findings the error is returned"
        );
        checkup.found(finding(true));
        assert!(checkup.interrupted("the rest", lost()).is_ok());
        assert_eq!(
            checkup.unchecked,
            [UncheckedPart {
                what: "the rest",
                why: "the connection was lost".to_owned()
            }]
        );
    }
}
