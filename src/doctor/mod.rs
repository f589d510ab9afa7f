//! Is all well? What is wrong with a server or a queue, what follows from it, and what mends it.

mod deliveries;
mod queue;
mod server;
mod shell;

use crate::error::{Error, ErrorKind};

#[cfg(any(test, feature = "harness"))]
pub(crate) use queue::raws;
pub use server::ServerTime;
pub use shell::shell_word;

/// How many findings one checkup names; the rest are counted.
const NAMED: usize = 1_000;

/// What was looked at, and what is wrong: of [`Client::examine`](crate::Client::examine) and
/// [`Queue::examine`](crate::Queue::examine).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checkup {
    /// What is wrong; the first 1,000.
    pub findings: Vec<Finding>,
    /// How many findings there are beyond those.
    pub more: u64,
    /// How many of these this checkup has mended.
    pub more_mended: u64,
    /// What is worth a look and not wrong, such as dead messages.
    pub remarks: Vec<Finding>,
    /// What could not be looked at.
    pub unchecked: Vec<Unchecked>,
    /// What was seen, wrong or not: names that stay the same from release to release, and values.
    pub facts: Vec<(&'static str, String)>,
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// A word for it that stays the same from release to release, such as `eviction` or `doubled`.
    pub code: &'static str,
    /// What it is about: an id, a key, a field, a setting.
    pub subject: Vec<u8>,
    /// What is wrong.
    pub problem: String,
    /// What follows from it.
    pub consequence: &'static str,
    /// The command that mends it, or what to look at where none does; once mended, what is left to do, if anything is.
    pub remedy: String,
    /// Whether this checkup has mended it.
    pub mended: bool,
}

/// Something that could not be looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unchecked {
    /// What.
    pub what: &'static str,
    /// Why not.
    pub why: String,
}

impl Checkup {
    fn fact(&mut self, name: &'static str, value: impl ToString) {
        self.facts.push((name, value.to_string()));
    }

    fn found(&mut self, finding: Finding) {
        if self.findings.len() < NAMED {
            self.findings.push(finding);
        } else {
            self.more += 1;
            self.more_mended += u64::from(finding.mended);
        }
    }

    /// A setting or state of the server that is wrong.
    fn wrong(
        &mut self,
        code: &'static str,
        subject: &str,
        problem: String,
        consequence: &'static str,
        remedy: impl Into<String>,
    ) {
        let (subject, remedy) = (subject.as_bytes().to_vec(), remedy.into());
        self.found(Finding {
            code,
            subject,
            problem,
            consequence,
            remedy,
            mended: false,
        });
    }

    /// Something that an operator wants to know, and that is not wrong.
    fn remark(
        &mut self,
        code: &'static str,
        subject: &str,
        problem: String,
        consequence: &'static str,
        remedy: String,
    ) {
        let subject = subject.as_bytes().to_vec();
        self.remarks.push(Finding {
            code,
            subject,
            problem,
            consequence,
            remedy,
            mended: false,
        });
    }

    /// What was found before an error is not lost with it, least of all what was mended; without any, the error is all.
    fn interrupted(&mut self, what: &'static str, error: Error) -> Result<(), Error> {
        if self.findings.is_empty() {
            return Err(error);
        }
        self.unchecked.push(Unchecked {
            what,
            why: error.to_string(),
        });
        Ok(())
    }

    /// The answer, if there is one; `None`, and a note, if the user may not ask. Other errors end the checkup.
    fn allowed<T>(
        &mut self,
        what: &'static str,
        answer: Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if is_denied(&error) => {
                self.unchecked.push(Unchecked {
                    what,
                    why: error.to_string(),
                });
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Whether the user lacks a right, for the call or for a command within it.
fn is_denied(error: &Error) -> bool {
    let text = error.to_string();
    // Some hosts rename CONFIG, or take it away.
    let lacks = [
        "NOPERM",
        "ACL failure in script",
        "can't run this command",
        "can't access",
        "unknown command",
    ];
    matches!(error.kind(), ErrorKind::Denied | ErrorKind::Server)
        && lacks.iter().any(|words| text.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Applied;

    fn finding(mended: bool) -> Finding {
        let (code, consequence) = ("hollow", "it is lost");
        Finding {
            code,
            subject: Vec::new(),
            problem: String::new(),
            consequence,
            remedy: String::new(),
            mended,
        }
    }

    #[test]
    fn what_is_beyond_the_named_is_counted_with_what_was_mended_of_it() {
        let mut checkup = Checkup::default();
        for number in 0..NAMED + 10 {
            checkup.found(finding(number % 2 == 0));
        }
        assert_eq!(
            (checkup.findings.len(), checkup.more, checkup.more_mended),
            (NAMED, 10, 5)
        );
    }

    #[test]
    fn an_error_halfway_does_not_lose_what_was_found() {
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
            "nothing was found: the error is all there is to say"
        );
        checkup.found(finding(true));
        assert!(checkup.interrupted("the rest", lost()).is_ok());
        assert_eq!(
            checkup.unchecked,
            [Unchecked {
                what: "the rest",
                why: "the connection was lost".to_owned()
            }]
        );
    }
}
