//! Explains why due messages wait, and what helps.

use crate::dashboard::show::{self, Clock, Markup};
use crate::wire::about::Examination;
use crate::wire::causes::WaitCause;
use crate::wire::queues::Queue;

/// A reason for which messages wait.
pub(super) struct Cause {
    pub(super) problem: String,
    /// When the cause ends without help, if it does.
    pub(super) until: Option<Markup>,
    pub(super) remedy: String,
    /// A shell command that helps.
    pub(super) command: Option<String>,
    /// A link to a page that helps: address and text.
    pub(super) link: Option<(String, &'static str)>,
    /// Whether the button "resume" helps.
    pub(super) resumes: bool,
}

impl Cause {
    fn new(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            problem: problem.into(),
            until: None,
            remedy: remedy.into(),
            command: None,
            link: None,
            resumes: false,
        }
    }
}

/// All causes that apply; none if no due message waits. `word` is the queue's name quoted for a
/// shell, `address` that of its page.
pub(super) fn causes(stats: &Queue, clock: &Clock, word: &str, address: &str) -> Vec<Cause> {
    let in_words = |cause| in_words(cause, stats, clock, word, address);
    WaitCause::of(stats).into_iter().map(in_words).collect()
}

fn in_words(cause: WaitCause, stats: &Queue, clock: &Clock, word: &str, address: &str) -> Cause {
    let leased = || {
        Some((
            format!("{address}/messages?state=leased"),
            "See what is leased",
        ))
    };
    let limits = || Some((format!("{address}#limits"), "See the limits"));
    match cause {
        WaitCause::Paused => {
            let problem = match stats.paused_partitions < stats.partitions {
                true => format!(
                    "{} of {} partitions are paused: the pause, or its end, did not reach the others.",
                    stats.paused_partitions, stats.partitions
                ),
                false => "The queue is paused: workers claim nothing.".to_owned(),
            };
            Cause {
                resumes: true,
                ..Cause::new(problem, "Resume it when the reason for the pause is gone.")
            }
        }
        WaitCause::Closed => Cause {
            until: Some(clock.time(clock.now_ms().saturating_add(stats.closed_ms))),
            resumes: true,
            ..Cause::new(
                "The queue is closed for some time: it was paused for that time, or a receiver asked for \
                 a break.",
                "Wait, or resume it now.",
            )
        },
        WaitCause::Rate => {
            let rate = show::number(stats.limits.rate.unwrap_or_default());
            let window = show::duration(stats.limits.rate_window_ms.unwrap_or_default());
            Cause {
                link: limits(),
                ..Cause::new(
                    format!(
                        "The rate of {rate} per {window} is used up: more messages are due than it lets start."
                    ),
                    "Wait, or raise the rate if the receiver can take more.",
                )
            }
        }
        WaitCause::Full => {
            let most = stats.limits.max_leased.unwrap_or(stats.leased);
            Cause {
                link: leased(),
                ..Cause::new(
                    format!(
                        "{} messages are leased, and max_leased is {}: each starts when another is settled.",
                        show::number(stats.leased),
                        show::number(most)
                    ),
                    "Wait, or raise max_leased if the receiver can take more.",
                )
            }
        }
        WaitCause::NoWorker => Cause {
            command: Some(format!("dueq work {word} --exec COMMAND")),
            ..Cause::new("No worker is alive.", "Start one:")
        },
        WaitCause::Drained => Cause {
            command: Some(format!("dueq workers {word} --resume PROCESS")),
            ..Cause::new(
                "All live workers are drained: they take nothing new.",
                "Start another one, or resume a process on its page:",
            )
        },
        WaitCause::Parked => Cause {
            resumes: true,
            ..Cause::new(
                format!(
                    "{}, and none looks at the queue now: it was empty for long. One looks again within {}.",
                    alive(stats),
                    show::duration(stats.parked_ms)
                ),
                "Wait, or resume it, which wakes a worker at once.",
            )
        },
        WaitCause::Unclaimed => Cause::new(
            format!(
                "{}, and no message has a handler: the workers cannot claim, or the consumers over HTTP do not.",
                alive(stats)
            ),
            "Look at the logs of the workers, or claim.",
        ),
        WaitCause::Busy => Cause {
            link: leased(),
            ..Cause::new(
                format!(
                    "{} with {} messages: all handlers are busy.",
                    alive(stats),
                    show::number(stats.leased)
                ),
                "Start more workers or consumers, or raise the concurrency of workers. If handlers hang, see what they hold.",
            )
        },
        WaitCause::Unread => Cause::new(
            "Redis, or a part of the queue, does not answer.",
            "Look at the server.",
        ),
    }
}

fn alive(stats: &Queue) -> String {
    match stats.nodes {
        1 => "1 worker is alive".to_owned(),
        nodes => format!("{} workers are alive", show::number(nodes)),
    }
}

/// The codes of findings that [`causes`] already covers in its own words.
const NAMED: [&str; 9] = [
    "paused", "closed", "rate", "full", "overdue", "drained", "silent", "parked", "dead",
];

/// The findings without those that [`causes`] already covers.
pub(super) fn unnamed(mut examination: Examination) -> Examination {
    let all = [&mut examination.findings, &mut examination.remarks];
    for list in all {
        list.retain(|finding| !NAMED.contains(&finding.code.as_str()));
        for finding in list {
            for text in [
                &mut finding.problem,
                &mut finding.consequence,
                &mut finding.remedy,
            ] {
                *text = show::text(text);
            }
        }
    }
    examination
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dashboard::show::Zone;
    use serde_json::{Value, json};

    fn of(change: &Value) -> Vec<String> {
        let late = Queue {
            scheduled: 3,
            due: 3,
            overdue_ms: 2_001,
            nodes: 1,
            ..Queue::default()
        };
        let mut stats = serde_json::to_value(late).expect("JSON");
        for (name, value) in change.as_object().expect("an object") {
            stats[name] = value.clone();
        }
        let stats: Queue = serde_json::from_value(stats).expect("counts");
        let clock = Clock::now(Zone::default());
        let causes = causes(&stats, &clock, "orders", "/queues/orders");
        causes.into_iter().map(|cause| cause.problem).collect()
    }

    #[test]
    fn single_cause_is_named_without_others() {
        for (change, begin) in [
            (json!({"paused": true}), "The queue is paused"),
            (
                json!({"paused": true, "paused_partitions": 8, "partitions": 12}),
                "8 of 12 partitions are paused",
            ),
            (json!({"closed_ms": 1}), "The queue is closed for some time"),
            (
                json!({"rate": 50, "rate_window_ms": 1000}),
                "The rate of 50 per 1 s",
            ),
            (
                json!({"rate": 50, "rate_window_ms": 1000, "closed_ms": 1000, "overdue_ms": 5}),
                "The rate of 50 per 1 s",
            ),
            (
                json!({"rate": 50, "rate_window_ms": 1000, "closed_ms": 1001}),
                "The queue is closed for some time",
            ),
            (
                json!({"full": true, "leased": 32, "max_leased": 32}),
                "32 messages are leased",
            ),
            (json!({"nodes": 0}), "No worker is alive"),
            (json!({}), "1 worker is alive, and no message"),
            (
                json!({"nodes": 2, "leased": 8}),
                "2 workers are alive with 8 messages",
            ),
            (
                json!({"parked_ms": 2001}),
                "1 worker is alive, and none looks",
            ),
        ] {
            let causes = of(&change);
            assert_eq!(causes.len(), 1, "{change}: {causes:?}");
            assert!(causes[0].starts_with(begin), "{change}: {causes:?}");
        }
    }

    #[test]
    fn all_causes_that_apply_are_named() {
        let causes = of(&json!({"paused": true, "nodes": 0, "overdue_ms": 1}));
        assert_eq!(
            causes,
            [
                "The queue is paused: workers claim nothing.",
                "No worker is alive."
            ]
        );
    }

    #[test]
    fn no_cause_is_named_while_no_message_is_late() {
        for change in [
            json!({"due": 0, "paused": true, "nodes": 0}),
            json!({"overdue_ms": 2000}),
            json!({"overdue_ms": 2000, "rate": 50, "rate_window_ms": 1000}),
        ] {
            assert!(of(&change).is_empty(), "{change}");
        }
    }
}
