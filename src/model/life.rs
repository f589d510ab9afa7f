//! The life of a message: what happened to it.

/// An event in the life of a message, which a queue keeps if
/// [`QueueLimits::keep_life_for`](crate::QueueLimits::keep_life_for) says so:
/// [`StoredMessage::life`](crate::StoredMessage::life), [`Queue::life_of`](crate::Queue::life_of).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct LifeEvent {
    /// When it happened, in Unix milliseconds of the server. An attempt has its event at its end.
    pub at_ms: u64,
    /// What happened: the name of the call, such as `push`, `retry`, `reschedule` or `ack`. Or
    /// `tick`: a schedule made the message; `undo`: a push undid a cancel; `next`: the message
    /// followed a delivery of its id; `crash`: the lease of an attempt ended; `expired`. Later
    /// releases may have further words.
    pub what: String,
    /// The due time that the message got; of an attempt, that of its claim. In Unix milliseconds.
    pub due_ms: Option<u64>,
    /// When the attempt began, in Unix milliseconds. `None` if no attempt ended, or if that is
    /// unknown.
    pub began_ms: Option<u64>,
    /// The end of the id of the worker that had the message: see
    /// [`LeaseInfo::node`](crate::inspect::LeaseInfo::node).
    pub node: Option<String>,
    /// The error of a retry, or the reason of a burial: its first 200 bytes.
    pub error: String,
}

impl LifeEvent {
    /// Reads the lines of a life. A line that cannot be read is skipped.
    pub(crate) fn read(life: &str) -> Vec<Self> {
        life.split('\n').filter_map(Self::of_line).collect()
    }

    /// Reads `<ms> <word> <due> <began> <node> <text>`. What is unknown is `-`, or left out at the end.
    fn of_line(line: &str) -> Option<Self> {
        let mut words = line.splitn(6, ' ');
        let mut word = || words.next();
        let (at_ms, what) = (word()?.parse().ok()?, word()?.to_owned());
        let mut known = || word().filter(|text| *text != "-");
        Some(Self {
            at_ms,
            what,
            due_ms: known().and_then(|ms| ms.parse().ok()),
            began_ms: known().and_then(|ms| ms.parse().ok()),
            node: known().map(str::to_owned),
            error: word().unwrap_or_default().to_owned(),
        })
    }

    /// For how many milliseconds the attempt ran. `None` if no attempt ended, if its start is
    /// unknown, or after a crash: nobody knows when that handler ended.
    pub fn ran_ms(&self) -> Option<u64> {
        let began_ms = self.began_ms.filter(|_| self.what != "crash")?;
        Some(self.at_ms.saturating_sub(began_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_life_are_read_and_others_skipped() {
        let life = "1000 push 2000\nnonsense\n3000 retry 2000 2500 abcdefg time out\n4000 crash 2000 3500 -";
        let events = LifeEvent::read(life);
        let told: Vec<_> = events
            .iter()
            .map(|event| {
                let node = event.node.as_deref();
                (
                    event.what.as_str(),
                    event.due_ms,
                    event.ran_ms(),
                    node,
                    event.error.as_str(),
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                ("push", Some(2_000), None, None, ""),
                ("retry", Some(2_000), Some(500), Some("abcdefg"), "time out"),
                ("crash", Some(2_000), None, None, ""),
            ]
        );
    }
}
