//! The log on standard error: which events it shows, and how often it repeats one error.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::filter::{EnvFilter, FilterExt, filter_fn};
use tracing_subscriber::fmt::format::{Format, JsonFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use crate::output;

/// The time for which repetitions of a shown error are only counted.
const PERIOD: Duration = Duration::from_secs(60);
/// The event of a failed attempt. The program emits it.
pub(crate) const ATTEMPT_FAILED: &str = "dueq.attempt_failed";
/// The event of a receiver that asks for a break. The program emits it.
pub(crate) const BREAK: &str = "dueq.receiver_break";
/// The event of a worker that cannot reach the server yet.
pub(crate) const NOT_STARTED: &str = "dueq.not_started";
/// The most lines per period for one error of failed attempts. Each line names another message.
const ATTEMPTS: u32 = 10;
/// The most errors that are remembered.
const REMEMBERED: usize = 1_000;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Style {
    /// Lines for people
    Text,
    /// One JSON object a line
    Json,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Level {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// Starts the log. `level` overrides RUST_LOG; the default is warnings.
pub(crate) fn start(style: Style, level: Option<Level>) {
    let chosen = match level {
        Some(Level::Warn) => None,
        Some(level @ (Level::Off | Level::Error)) => Some(EnvFilter::new(level.name())),
        Some(level) => Some(EnvFilter::new(format!("warn,dueq={}", level.name()))),
        None => EnvFilter::try_from_default_env().ok(),
    };
    // By default, also show the events of repeated calls: they explain why a call takes up to ten
    // seconds.
    let is_default = chosen.is_none();
    let waits = filter_fn(move |metadata: &Metadata<'_>| {
        is_default && metadata.name() == "dueq.call_repeated"
    });
    let filter = chosen.unwrap_or_else(|| EnvFilter::new("warn")).or(waits);
    let json = style == Style::Json;
    let layer = tracing_subscriber::fmt::layer().with_writer(move || output::Log { json });
    let floods = Mutex::new(Floods::default());
    let layer = match style {
        Style::Text => layer
            .event_format(Sparing {
                format: Format::default().with_target(false),
                json,
                floods,
            })
            .boxed(),
        Style::Json => layer
            .fmt_fields(JsonFields::new())
            .event_format(Sparing {
                format: Format::default()
                    .json()
                    .flatten_event(true)
                    .with_target(false),
                json,
                floods,
            })
            .boxed(),
    };
    tracing_subscriber::registry()
        .with(layer.with_filter(filter))
        .init();
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// A log format that drops events which [`Floods`] withholds, and reports their number.
struct Sparing<F> {
    format: F,
    json: bool,
    floods: Mutex<Floods>,
}

impl<S, N, F> FormatEvent<S, N> for Sparing<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut to: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let judged = {
            let mut floods = self.floods.lock().unwrap_or_else(PoisonError::into_inner);
            floods.judge(event.metadata().name(), &fields, Instant::now())
        };
        match judged {
            Judged::Withhold => Ok(()),
            Judged::Show(0) => self.format.format_event(context, to, event),
            Judged::Show(withheld) => {
                let mut line = String::new();
                self.format
                    .format_event(context, Writer::new(&mut line), event)?;
                writeln!(to, "{}", with_count(line.trim_end(), withheld, self.json))
            }
        }
    }
}

/// Adds to a log line how often it was withheld.
fn with_count(line: &str, withheld: u64, json: bool) -> String {
    match line.strip_suffix('}').filter(|_| json) {
        Some(object) => format!("{object},\"withheld\":{withheld}}}"),
        None => format!("{line} (and {withheld} more times since the last such line)"),
    }
}

/// The fields of an event that decide whether it is shown.
#[derive(Default)]
struct Fields {
    queue: String,
    call: String,
    error: String,
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "queue" => value.clone_into(&mut self.queue),
            "call" => value.clone_into(&mut self.call),
            "error" => value.clone_into(&mut self.error),
            _ => {}
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if matches!(field.name(), "queue" | "call" | "error") {
            self.record_str(field, &format!("{value:?}"));
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Judged {
    /// Show the line, and report how often it was withheld.
    Show(u64),
    Withhold,
}

/// Remembers recent errors: each is shown once a period, and the end of an outage is shown once.
#[derive(Default)]
struct Floods {
    shown: HashMap<String, Shown>,
    /// The failing calls, by queue and call. The recovery of each would be an event.
    failing: HashSet<(String, String)>,
    /// Whether a failure was shown since the last shown recovery.
    is_outage_shown: bool,
}

struct Shown {
    since: Instant,
    lines: u32,
    withheld: u64,
}

impl Floods {
    fn judge(&mut self, name: &str, fields: &Fields, now: Instant) -> Judged {
        let most = match name {
            "dueq.recovered" => return self.recovered(fields),
            ATTEMPT_FAILED | BREAK => ATTEMPTS,
            "dueq.call_failed"
            | "dueq.call_repeated"
            | "dueq.wake_up_failed"
            | "dueq.subscription_failed"
            | "dueq.subscription_denied"
            | "dueq.extend_failed"
            | "dueq.master_unknown"
            | NOT_STARTED => 1,
            _ => return Judged::Show(0),
        };
        if name == "dueq.call_failed" && matches!(&*fields.call, "claim" | "beat") {
            self.failing
                .insert((fields.queue.clone(), fields.call.clone()));
        }
        if self.shown.len() >= REMEMBERED {
            self.shown
                .retain(|_, shown| now.duration_since(shown.since) < PERIOD);
        }
        if self.shown.len() >= REMEMBERED {
            self.shown.clear();
        }
        let shown = self.shown.entry(fields.error.clone()).or_insert(Shown {
            since: now,
            lines: 0,
            withheld: 0,
        });
        if now.duration_since(shown.since) >= PERIOD {
            (shown.since, shown.lines) = (now, 0);
        }
        if shown.lines >= most {
            shown.withheld += 1;
            return Judged::Withhold;
        }
        shown.lines += 1;
        self.is_outage_shown |= most == 1;
        Judged::Show(std::mem::take(&mut shown.withheld))
    }

    /// Shows the end of an outage once, when no call fails any more.
    fn recovered(&mut self, fields: &Fields) -> Judged {
        self.failing
            .remove(&(fields.queue.clone(), fields.call.clone()));
        if self.failing.is_empty() && std::mem::take(&mut self.is_outage_shown) {
            Judged::Show(0)
        } else {
            Judged::Withhold
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(floods: &mut Floods, call: &str, error: &str, at: Instant) -> Judged {
        let fields = Fields {
            queue: "q".to_owned(),
            call: call.to_owned(),
            error: error.to_owned(),
        };
        floods.judge("dueq.call_failed", &fields, at)
    }

    fn recovered(floods: &mut Floods, call: &str, at: Instant) -> Judged {
        let fields = Fields {
            queue: "q".to_owned(),
            call: call.to_owned(),
            error: String::new(),
        };
        floods.judge("dueq.recovered", &fields, at)
    }

    #[test]
    fn repeated_error_is_shown_once_a_minute_with_a_count() {
        let (mut floods, start) = (Floods::default(), Instant::now());
        let mut lines = Vec::new();
        for tenth in 0..1_300 {
            let at = start + Duration::from_millis(100) * tenth;
            if let Judged::Show(withheld) = failed(&mut floods, "claim", "READONLY", at) {
                lines.push((tenth, withheld));
            }
        }
        assert_eq!(lines, [(0, 0), (600, 599), (1_200, 599)]);
        assert_eq!(
            failed(&mut floods, "claim", "MISCONF", start),
            Judged::Show(0),
            "another error is shown at once"
        );
    }

    #[test]
    fn recovery_is_shown_once_after_all_calls_succeed() {
        let (mut floods, now) = (Floods::default(), Instant::now());
        assert_eq!(
            recovered(&mut floods, "beat", now),
            Judged::Withhold,
            "no failure was shown"
        );
        assert_eq!(failed(&mut floods, "claim", "away", now), Judged::Show(0));
        assert_eq!(failed(&mut floods, "beat", "away", now), Judged::Withhold);
        assert_eq!(
            recovered(&mut floods, "beat", now),
            Judged::Withhold,
            "claims still fail"
        );
        assert_eq!(recovered(&mut floods, "claim", now), Judged::Show(0));
        assert_eq!(failed(&mut floods, "claim", "away", now), Judged::Withhold);
        assert_eq!(
            recovered(&mut floods, "claim", now),
            Judged::Withhold,
            "its failure was not shown again"
        );
    }

    #[test]
    fn each_failed_attempt_error_has_ten_lines_a_minute() {
        let (mut floods, now) = (Floods::default(), Instant::now());
        let mut lines = |at| {
            let fields = Fields {
                error: "HTTP 503".to_owned(),
                ..Fields::default()
            };
            (0..100)
                .filter(|_| floods.judge(ATTEMPT_FAILED, &fields, at) != Judged::Withhold)
                .count()
        };
        assert_eq!((lines(now), lines(now), lines(now + PERIOD)), (10, 0, 10));
    }

    #[test]
    fn withheld_count_is_added_to_text_and_json() {
        assert_eq!(
            with_count("failed error=x", 7, false),
            "failed error=x (and 7 more times since the last such line)"
        );
        let object = with_count("{\"error\":\"x\"}", 7, true);
        let value: serde_json::Value = serde_json::from_str(&object).expect("JSON");
        assert_eq!(value, serde_json::json!({ "error": "x", "withheld": 7 }));
    }

    #[test]
    fn number_of_remembered_errors_is_bounded() {
        let (mut floods, now) = (Floods::default(), Instant::now());
        for number in 0..10 * REMEMBERED {
            failed(&mut floods, "claim", &number.to_string(), now);
        }
        assert!(floods.shown.len() <= REMEMBERED);
    }
}
