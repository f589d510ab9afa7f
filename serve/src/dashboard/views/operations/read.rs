//! Describes an operation in words.

use crate::dashboard::api::Failure;
use crate::dashboard::frame::segment;
use crate::dashboard::page::Page;
use crate::dashboard::show::{self, Clock, Markup};
use crate::wire::operations::{
    Kind, OperationList, OperationReport, Phase, RepartitionState, Wrong,
};

/// All operations of this instance on queues of the caller, the newest first.
pub(in crate::dashboard::views) async fn all(page: &Page) -> Result<Vec<OperationReport>, Failure> {
    let found: OperationList = page.api.get("/v1/operations").await?;
    Ok(found.operations)
}

impl RepartitionState {
    pub(super) fn phase(&self) -> String {
        show::text(&self.phase)
    }
}

impl OperationReport {
    pub(in crate::dashboard::views) fn id(&self) -> &str {
        &self.id
    }

    pub(in crate::dashboard::views) fn is_running(&self) -> bool {
        self.progress.state == Phase::Running
    }

    /// Whether the operation is an audit, which looks for damage.
    pub(in crate::dashboard::views) fn is_audit(&self) -> bool {
        matches!(self.kind, Kind::Audit | Kind::Repair)
    }

    /// Whether `of` is an estimate.
    fn is_estimated(&self) -> bool {
        self.is_audit() || self.kind == Kind::Repartition
    }

    /// What an audit has found so far.
    pub(in crate::dashboard::views) fn found(&self) -> Option<String> {
        let audit = self.progress.audit.as_ref()?;
        let (found, repaired) = (show::number(audit.found), show::number(audit.repaired));
        Some(match (audit.found, audit.repaired) {
            (0, _) => "nothing is wrong".to_owned(),
            (_, 0) => format!("{found} found"),
            _ => format!("{found} found, {repaired} repaired"),
        })
    }

    /// Whether a repair should follow: the audit has found damage.
    pub(super) fn is_repairable(&self) -> bool {
        let audit = self.progress.audit.as_ref();
        let left = audit.is_some_and(|audit| audit.found > audit.repaired);
        left && self.is_audit() && !self.is_running()
    }

    pub(in crate::dashboard::views) fn queue(&self) -> String {
        show::text(&self.queue)
    }

    pub(in crate::dashboard::views) fn queue_segment(&self) -> String {
        segment(&self.queue)
    }

    /// The address of the operation's page, below the base path.
    pub(in crate::dashboard::views) fn address(&self) -> String {
        format!("/operations/{}/{}", segment(&self.queue), segment(&self.id))
    }

    /// The operation in words: Requeue of dead messages.
    pub(in crate::dashboard::views) fn name(&self) -> String {
        let what = match (self.kind, self.messages.as_deref()) {
            (Kind::Requeue, _) => "Requeue of dead messages".to_owned(),
            (Kind::Purge, Some(state)) => format!("Purge of {state} messages"),
            (Kind::Purge, None) => "Purge".to_owned(),
            (Kind::Cancel, Some("dead")) => "Removal of dead messages".to_owned(),
            (Kind::Cancel, Some(state)) => format!("Cancel of {state} messages"),
            (Kind::Cancel, None) => "Cancel by id".to_owned(),
            (Kind::Audit, _) => "Audit".to_owned(),
            (Kind::Repair, _) => "Repair".to_owned(),
            (Kind::Repartition, _) => match self.partitions {
                Some(count) => format!("Change to {count} partitions"),
                None => "Change of partitions taken back".to_owned(),
            },
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

    /// The error by which the operation selects dead messages.
    pub(super) fn error(&self) -> Option<String> {
        let error = self.error.as_deref()?;
        Some(match error {
            "" => "none".to_owned(),
            error => show::text(error),
        })
    }

    /// The filter by which the operation selects messages, in words.
    pub(super) fn filter(&self) -> Option<String> {
        let text = self.error_text.as_deref();
        let text = text.map(|text| format!("“{}” in the error", show::text(text)));
        let least = |count: Option<u32>, what| Some(format!("{} {what} or more", count?));
        let failures = least(self.min_failures, "failures");
        let crashes = least(self.min_crashes, "crashes");
        let parts: Vec<_> = [text, failures, crashes].into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    pub(super) fn started(&self, clock: &Clock) -> Markup {
        clock.time(self.started_ms)
    }

    pub(super) fn ended(&self, clock: &Clock) -> Option<Markup> {
        self.progress.ended_ms.map(|ms| clock.time(ms))
    }

    /// The bound of the operation: it selects messages that died or were due by this time.
    pub(super) fn before(&self, clock: &Clock) -> Option<Markup> {
        self.before_ms.map(|ms| clock.time(ms))
    }

    /// The lower bound of the operation.
    pub(super) fn after(&self, clock: &Clock) -> Option<Markup> {
        self.after_ms.map(|ms| clock.time(ms))
    }

    /// The operation's state as a word, and its CSS class.
    pub(in crate::dashboard::views) fn state(&self) -> (&'static str, &'static str) {
        match self.progress.state {
            Phase::Running if self.progress.waiting.is_some() => ("waiting for Redis", "overdue"),
            Phase::Running => ("running", "leased"),
            Phase::Done => ("done", "ended"),
            Phase::Stopped => ("stopped", "paused"),
            Phase::Failed => ("failed", "dead"),
        }
    }

    /// Why the operation waits, has stopped or failed.
    pub(super) fn why(&self) -> Option<String> {
        let problem = self
            .progress
            .problem
            .as_ref()
            .or(self.progress.waiting.as_ref());
        let detail = problem.map(|error| &error.detail);
        self.progress
            .reason
            .as_ref()
            .or(detail)
            .map(|why| show::text(why))
    }

    /// The progress in words: 1,234 of 10,000 requeued.
    pub(in crate::dashboard::views) fn progress(&self) -> String {
        let verb = match (self.kind, self.dry_run) {
            (Kind::Audit | Kind::Repair, _) => "entries looked at",
            (_, true) => "counted",
            (Kind::Requeue, _) => "requeued",
            (Kind::Purge, _) => "removed",
            (Kind::Cancel, _) => "cancelled",
            (Kind::Repartition, _) => "moved",
        };
        let done = show::number(self.progress.done);
        match self.progress.of {
            Some(of) if self.is_estimated() => {
                format!("{done} of about {} {verb}", show::number(of))
            }
            Some(of) => format!("{done} of {} {verb}", show::number(of)),
            None => format!("{done} {verb}"),
        }
    }

    /// The estimated time to the end at the operation's pace, if it is known.
    pub(super) fn rest(&self) -> Option<String> {
        let left = self
            .progress
            .of?
            .checked_sub(self.progress.done)
            .filter(|left| *left > 0)?;
        let is_going = self.is_running() && self.progress.waiting.is_none();
        let measured = self.progress.repartition.as_ref();
        let pace = self.pace.or(measured.map(|state| state.per_second));
        let pace = pace.filter(|pace| *pace > 0 && is_going)?;
        Some(show::duration(left.saturating_mul(1_000) / pace))
    }

    /// The number of messages that a stopped or failed operation has not processed.
    pub(super) fn left(&self) -> Option<u64> {
        let is_cut_off = matches!(self.progress.state, Phase::Stopped | Phase::Failed);
        let changes = !self.is_audit() && !self.dry_run;
        let left = self
            .progress
            .of?
            .checked_sub(self.progress.done.saturating_add(self.progress.unknown))?;
        (is_cut_off && changes && left > 0).then_some(left)
    }

    /// The progress bar, with a text for screen readers. If the total is unknown, it has no value.
    pub(in crate::dashboard::views) fn bar(&self) -> Markup {
        let label = Markup::escaped(&format!("{}: {}", self.title(), self.progress()));
        let value = match (self.progress.of, self.progress.state) {
            (_, Phase::Done) => " max=\"1\" value=\"1\"".to_owned(),
            (Some(of), _) => format!(
                " max=\"{}\" value=\"{}\"",
                of.max(1),
                self.progress.done.min(of)
            ),
            (None, Phase::Running) => String::new(),
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
    use crate::wire::operations::Progress;

    fn operation(kind: Kind, state: Phase) -> OperationReport {
        OperationReport {
            id: String::new(),
            queue: String::new(),
            kind,
            messages: None,
            before_ms: None,
            after_ms: None,
            error: None,
            crashed: None,
            error_text: None,
            min_failures: None,
            min_crashes: None,
            limit: None,
            cancelled_href: None,
            dry_run: false,
            pace: Some(1_000),
            partitions: None,
            abort: None,
            gentle: None,
            progress: Progress {
                state,
                ..Progress::default()
            },
            by: String::new(),
            started_ms: 0,
            href: String::new(),
        }
    }

    #[test]
    fn operation_shows_progress_in_words_and_as_a_bar() {
        let mut running = operation(Kind::Requeue, Phase::Running);
        assert_eq!(running.progress(), "0 requeued");
        assert!(!running.bar().to_string().contains("value="));
        (running.progress.done, running.progress.of) = (1_234, Some(10_234));
        assert_eq!(running.progress(), "1,234 of 10,234 requeued");
        assert_eq!(running.rest().as_deref(), Some("9 s"));
        assert_eq!(running.left(), None);
        running.progress.state = Phase::Stopped;
        assert_eq!((running.left(), running.rest()), (Some(9_000), None));
        running.progress.state = Phase::Running;
        assert!(
            running
                .bar()
                .to_string()
                .contains("max=\"10234\" value=\"1234\"")
        );
        let mut audit = operation(Kind::Audit, Phase::Done);
        (audit.progress.done, audit.progress.of) = (7, Some(9));
        assert_eq!(audit.progress(), "7 of about 9 entries looked at");
        assert!(audit.bar().to_string().contains("max=\"1\" value=\"1\""));
        assert_eq!(audit.rest(), None);
    }

    #[test]
    fn progress_bar_escapes_the_queue_name() {
        let mut hostile = operation(Kind::Audit, Phase::Running);
        hostile.queue = "\"><b>".to_owned();
        let bar = hostile.bar().to_string();
        assert!(bar.contains("&quot;&gt;&lt;b&gt;"), "{bar}");
    }
}
