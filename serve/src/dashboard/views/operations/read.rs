//! An operation as `/v1` answers it, and in words.

use serde::Deserialize;

use crate::dashboard::api::Failure;
use crate::dashboard::frame::segment;
use crate::dashboard::page::Page;
use crate::dashboard::show::{self, Clock, Markup};

#[derive(Deserialize)]
struct Operations {
    operations: Vec<Operation>,
}

/// An operation on a queue.
#[derive(Debug, Default, Deserialize)]
pub(in crate::dashboard::views) struct Operation {
    id: String,
    queue: String,
    kind: String,
    /// The state of the messages that it deals with.
    messages: Option<String>,
    before_ms: Option<u64>,
    /// Of a requeue: only what died with this error.
    error: Option<String>,
    dry_run: bool,
    pub(super) pace: u64,
    state: String,
    pub(super) done: u64,
    pub(super) of: Option<u64>,
    pub(super) unknown: u64,
    pub(super) skipped: Option<Skipped>,
    pub(super) canary: Option<Canary>,
    pub(super) audit: Option<Audit>,
    waiting: Option<Error>,
    reason: Option<String>,
    problem: Option<Error>,
    ended_ms: Option<u64>,
    by: String,
    started_ms: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Skipped {
    pub(super) leased: u64,
    pub(super) dead: u64,
    pub(super) absent: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Canary {
    pub(super) messages: u64,
    pub(super) settled: u64,
    pub(super) died: u64,
    pub(super) waiting: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Audit {
    pub(super) found: u64,
    pub(super) repaired: u64,
    #[serde(default)]
    pub(super) findings: Vec<Wrong>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Wrong {
    subject: String,
    problem: String,
    pub(super) consequence: String,
    remedy: String,
    pub(super) repaired: bool,
}

#[derive(Debug, Deserialize)]
struct Error {
    detail: String,
}

/// All operations of this instance on queues that the caller may use, the newest first.
pub(in crate::dashboard::views) async fn all(page: &Page) -> Result<Vec<Operation>, Failure> {
    let found: Operations = page.api.get("/v1/operations").await?;
    Ok(found.operations)
}

impl Operation {
    pub(in crate::dashboard::views) fn id(&self) -> &str {
        &self.id
    }

    pub(in crate::dashboard::views) fn is_running(&self) -> bool {
        self.state == "running"
    }

    /// Whether it looks for damage.
    pub(in crate::dashboard::views) fn is_audit(&self) -> bool {
        matches!(self.kind.as_str(), "audit" | "repair")
    }

    /// What an audit has found so far.
    pub(in crate::dashboard::views) fn found(&self) -> Option<String> {
        let audit = self.audit.as_ref()?;
        let (found, repaired) = (show::number(audit.found), show::number(audit.repaired));
        Some(match (audit.found, audit.repaired) {
            (0, _) => "nothing is wrong".to_owned(),
            (_, 0) => format!("{found} found"),
            _ => format!("{found} found, {repaired} repaired"),
        })
    }

    /// Whether a repair has something to do after it.
    pub(super) fn is_repairable(&self) -> bool {
        let audit = self.audit.as_ref();
        let left = audit.is_some_and(|audit| audit.found > audit.repaired);
        left && self.is_audit() && !self.is_running()
    }

    pub(in crate::dashboard::views) fn queue(&self) -> String {
        show::text(&self.queue)
    }

    pub(in crate::dashboard::views) fn queue_segment(&self) -> String {
        segment(&self.queue)
    }

    /// The address of its page below the base.
    pub(in crate::dashboard::views) fn address(&self) -> String {
        format!("/operations/{}/{}", segment(&self.queue), segment(&self.id))
    }

    /// What it does: Requeue of dead messages.
    pub(in crate::dashboard::views) fn name(&self) -> String {
        let what = match (self.kind.as_str(), self.messages.as_deref()) {
            ("requeue", _) => "Requeue of dead messages".to_owned(),
            ("purge", Some(state)) => format!("Purge of {state} messages"),
            ("purge", None) => "Purge".to_owned(),
            ("cancel", _) => "Cancel by id".to_owned(),
            ("audit", _) => "Audit".to_owned(),
            ("repair", _) => "Repair".to_owned(),
            (other, _) => other.to_owned(),
        };
        match self.dry_run {
            true => format!("{what}, dry run"),
            false => what,
        }
    }

    pub(super) fn title(&self) -> String {
        format!("{}: {}", self.name(), self.queue())
    }

    pub(super) fn by(&self) -> String {
        show::text(&self.by)
    }

    /// The error that all its messages died with.
    pub(super) fn error(&self) -> Option<String> {
        let error = self.error.as_deref()?;
        Some(match error {
            "" => "none".to_owned(),
            error => show::text(error),
        })
    }

    pub(super) fn started(&self, clock: &Clock) -> Markup {
        clock.time(self.started_ms)
    }

    pub(super) fn ended(&self, clock: &Clock) -> Option<Markup> {
        self.ended_ms.map(|ms| clock.time(ms))
    }

    /// Until when messages died or were due that it deals with.
    pub(super) fn before(&self, clock: &Clock) -> Option<Markup> {
        self.before_ms.map(|ms| clock.time(ms))
    }

    /// The state as a word and its class.
    pub(in crate::dashboard::views) fn state(&self) -> (&'static str, &'static str) {
        match self.state.as_str() {
            "running" if self.waiting.is_some() => ("waiting for Redis", "overdue"),
            "running" => ("running", "leased"),
            "done" => ("done", "ended"),
            "stopped" => ("stopped", "paused"),
            _ => ("failed", "dead"),
        }
    }

    /// Why it waits, has stopped or failed.
    pub(super) fn why(&self) -> Option<String> {
        let problem = self.problem.as_ref().or(self.waiting.as_ref());
        let detail = problem.map(|error| &error.detail);
        self.reason.as_ref().or(detail).map(|why| show::text(why))
    }

    /// How far it is: 1,234 of 10,000 requeued.
    pub(in crate::dashboard::views) fn progress(&self) -> String {
        let verb = match (self.kind.as_str(), self.dry_run) {
            ("audit" | "repair", _) => "entries looked at",
            (_, true) => "counted",
            ("requeue", _) => "requeued",
            ("purge", _) => "removed",
            _ => "cancelled",
        };
        let done = show::number(self.done);
        match self.of {
            Some(of) if self.is_audit() => format!("{done} of about {} {verb}", show::number(of)),
            Some(of) => format!("{done} of {} {verb}", show::number(of)),
            None => format!("{done} {verb}"),
        }
    }

    /// How long the rest takes at its pace, if that is known.
    pub(super) fn rest(&self) -> Option<String> {
        let left = self.of?.checked_sub(self.done).filter(|left| *left > 0)?;
        let is_going = self.is_running() && self.waiting.is_none();
        is_going.then(|| show::duration(left.saturating_mul(1_000) / self.pace.max(1)))
    }

    /// How many messages an operation that was stopped, or has failed, has not dealt with.
    pub(super) fn left(&self) -> Option<u64> {
        let is_cut_off = matches!(self.state.as_str(), "stopped" | "failed");
        let changes = !self.is_audit() && !self.dry_run;
        let left = self
            .of?
            .checked_sub(self.done.saturating_add(self.unknown))?;
        (is_cut_off && changes && left > 0).then_some(left)
    }

    /// The bar, with a text for those who do not see it. Without an end it has no value.
    pub(in crate::dashboard::views) fn bar(&self) -> Markup {
        let label = Markup::escaped(&format!("{}: {}", self.title(), self.progress()));
        let value = match (self.of, self.state.as_str()) {
            (_, "done") => " max=\"1\" value=\"1\"".to_owned(),
            (Some(of), _) => format!(" max=\"{}\" value=\"{}\"", of.max(1), self.done.min(of)),
            (None, "running") => String::new(),
            (None, _) => " max=\"1\" value=\"0\"".to_owned(),
        };
        Markup::of(format!(
            "<progress aria-label=\"{label}\"{value}></progress>"
        ))
    }
}

impl Wrong {
    pub(super) fn subject(&self) -> String {
        show::text(&self.subject)
    }

    pub(super) fn problem(&self) -> String {
        show::text(&self.problem)
    }

    pub(super) fn remedy(&self) -> String {
        show::text(&self.remedy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(kind: &str, state: &str) -> Operation {
        Operation {
            kind: kind.to_owned(),
            state: state.to_owned(),
            pace: 1_000,
            ..Operation::default()
        }
    }

    #[test]
    fn progress_is_said_in_words_and_as_a_bar() {
        let mut running = operation("requeue", "running");
        assert_eq!(running.progress(), "0 requeued");
        assert!(!running.bar().to_string().contains("value="));
        (running.done, running.of) = (1_234, Some(10_234));
        assert_eq!(running.progress(), "1,234 of 10,234 requeued");
        assert_eq!(running.rest().as_deref(), Some("9 s"));
        assert_eq!(running.left(), None);
        running.state = "stopped".to_owned();
        assert_eq!((running.left(), running.rest()), (Some(9_000), None));
        running.state = "running".to_owned();
        assert!(
            running
                .bar()
                .to_string()
                .contains("max=\"10234\" value=\"1234\"")
        );
        let mut audit = operation("audit", "done");
        (audit.done, audit.of) = (7, Some(9));
        assert_eq!(audit.progress(), "7 of about 9 entries looked at");
        assert!(audit.bar().to_string().contains("max=\"1\" value=\"1\""));
        assert_eq!(audit.rest(), None);
    }

    #[test]
    fn bars_escape_the_name_of_the_queue() {
        let mut hostile = operation("audit", "running");
        hostile.queue = "\"><b>".to_owned();
        let bar = hostile.bar().to_string();
        assert!(bar.contains("&quot;&gt;&lt;b&gt;"), "{bar}");
    }
}
