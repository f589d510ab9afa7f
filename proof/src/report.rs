//! The result of a run: one JSON object for programs, a page for people.

use serde_json::{Map, Value, json};

use crate::check::Verdict;
use crate::recovery::Recoveries;
use crate::run::{Options, Ran};

pub struct Report<'a> {
    pub options: &'a Options,
    pub ran: &'a Ran,
    pub verdict: &'a Verdict,
    pub recoveries: &'a Recoveries,
}

impl Report<'_> {
    pub fn is_valid(&self) -> bool {
        self.verdict.valid && self.ran.wrong.is_empty()
    }

    pub fn is_green(&self) -> bool {
        self.is_valid() && self.verdict.is_green()
    }

    /// The reasons why a run proves nothing, and the failures that the harness itself saw.
    pub fn wrong(&self) -> impl Iterator<Item = &String> {
        self.ran.wrong.iter().chain(&self.verdict.invalid_because)
    }

    /// The JSON object that is printed as the last line.
    pub fn json(&self) -> Value {
        let recovery = |by: &crate::recovery::Recovery| json!({"count": by.count, "p50": by.p50, "max": by.max});
        let recoveries: Map<_, _> = self
            .recoveries
            .by_fault
            .iter()
            .map(|(kind, by)| (kind.clone(), recovery(by)))
            .collect();
        let mut faults = self.ran.traced.clone();
        faults.extend(self.recoveries.handlers.clone());
        let mut object = Map::new();
        let mut add = |key: &str, value: Value| drop(object.insert(key.to_owned(), value));
        add("valid", self.is_valid().into());
        add("seed", self.options.seed.into());
        add("messages", self.verdict.messages.into());
        add("deliveries", self.verdict.deliveries.into());
        add("unjudged", self.verdict.unjudged.into());
        add("shares_judged", self.verdict.shares_judged.into());
        add("replicated", self.verdict.replicated.into());
        add(
            "lost_in_declared_window",
            self.verdict.lost_in_declared_window.into(),
        );
        if let Ok(Value::Object(violations)) = serde_json::to_value(&self.verdict.violations) {
            violations
                .into_iter()
                .for_each(|(key, value)| add(&key, value));
        }
        add("limits", json!(self.verdict.limits));
        add("follow_ups", self.verdict.follow_ups.into());
        add("windows", json!(self.verdict.windows));
        add("moves", json!(self.verdict.moves));
        add("http", json!(self.verdict.http));
        add("schedules", json!(self.verdict.schedules));
        add(
            "excuses",
            serde_json::to_value(&self.verdict.excuses).unwrap_or_default(),
        );
        add(
            "lateness_ms",
            serde_json::to_value(self.verdict.lateness).unwrap_or_default(),
        );
        add("queues", json!(self.verdict.queues));
        add(
            "explained_duplicates",
            serde_json::to_value(&self.verdict.explained_duplicates).unwrap_or_default(),
        );
        add("verbs", json!(self.verdict.verbs));
        add("faults", json!(faults));
        add("not_applied", json!(self.ran.not_applied));
        add("recovery_ms", Value::Object(recoveries));
        add("server", self.ran.server.clone().into());
        add(
            "drained_ms",
            u64::try_from(self.ran.drained_in.as_millis())
                .unwrap_or(u64::MAX)
                .into(),
        );
        add("wrong", json!(self.wrong().collect::<Vec<_>>()));
        Value::Object(object)
    }

    /// The report for people, in Markdown.
    pub fn page(&self) -> String {
        let (verdict, ran) = (self.verdict, self.ran);
        let mut page = String::new();
        let mut line = |text: String| page.extend([&*text, "\n"]);
        line(format!(
            "# Chaos, seed {}: {}\n",
            self.options.seed,
            if self.is_green() {
                "all is well"
            } else {
                "NOT WELL"
            }
        ));
        line(format!("- Server: {}", ran.server));
        line(format!(
            "- Under faults for {:.0} s; drained in {:.1} s after the last one",
            ran.ran.as_secs_f64(),
            ran.drained_in.as_secs_f64()
        ));
        line(format!(
            "- Messages: {}; deliveries: {}; pushed, as the server counted: {}",
            verdict.messages, verdict.deliveries, ran.pushed
        ));
        line(format!(
            "- Acknowledged as replicated: {}; undone by failovers and truncated files without a violation: {}",
            verdict.replicated, verdict.lost_in_declared_window
        ));
        line(format!(
            "- Not judged, for too many unknown outcomes: {}",
            verdict.unjudged
        ));
        line(format!(
            "- Starts of handlers judged by the shares of their worker: {}",
            verdict.shares_judged
        ));
        let limits = verdict.limits;
        line(format!(
            "- Grants under a rate: {}, at most {} starts in a window; under a limit of leased messages: {}, at most {} leased",
            limits.under_rate, limits.most_in_window, limits.under_max_leased, limits.most_leased
        ));
        line(format!(
            "- Messages that expired: {}; snoozes: {}; throttles: {}",
            limits.expired, limits.snoozed, limits.throttled
        ));
        line(format!(
            "- Messages that were stored together with an ack: {}",
            verdict.follow_ups
        ));
        line(format!(
            "- Messages that moved to another partition: {} in {} batches, of which {} came back",
            verdict.moves.messages, verdict.moves.batches, verdict.moves.returned
        ));
        line(format!(
            "- Pushes with a window: {} stored a message, {} found their id remembered",
            verdict.windows.created, verdict.windows.remembered
        ));
        let of = verdict.schedules;
        line(format!(
            "- Schedules left: {}, with {} fires: made {}, missed {}, overlapped {}, paused {}; triggered {}; ended at their limit {}; deliveries of ticks {}; declarations applied {}, refused as older {}",
            of.left,
            of.fires,
            of.made,
            of.missed,
            of.overlapped,
            of.paused,
            of.triggered,
            of.ended,
            of.granted,
            of.applied,
            of.stale
        ));
        line(format!(
            "- Ticks of past fires made by hand: {}; lists of crons refilled: {}, of these used up before: {}",
            of.backfilled, of.refilled, of.dry
        ));
        let late = verdict.lateness;
        line(format!(
            "- Claimed after they were due, where that is certain: {} messages; p50 {} ms, p99 {} ms, longest {} ms",
            late.judged, late.p50, late.p99, late.max
        ));
        for (queue, counts) in &verdict.queues {
            let late = counts.lateness;
            line(format!(
                "- Queue {queue}: {} messages, {} deliveries, {} violations; late p50 {} ms, p99 {} ms, longest {} ms",
                counts.messages, counts.deliveries, counts.violations, late.p50, late.p99, late.max
            ));
        }
        for (fault, count) in &ran.not_applied {
            line(format!(
                "- Not applied, as there was nothing to apply it to: {fault}, {count} times"
            ));
        }
        for left_out in &ran.left_out {
            line(format!("- Left out: {left_out}"));
        }
        for wrong in self.wrong() {
            line(format!("- **Wrong:** {wrong}"));
        }
        let verbs: Vec<_> = verdict
            .verbs
            .iter()
            .map(|(verb, count)| format!("{verb} {count}"))
            .collect();
        line(format!("- Answered calls: {}", verbs.join(", ")));
        line("\n| violation | count |\n|---|---|".to_owned());
        for (kind, count) in &verdict.violations {
            line(format!("| {} | {count} |", word(kind)));
        }
        for (kind, examples) in &verdict.examples {
            line(format!("\n{}:", word(kind)));
            examples
                .iter()
                .for_each(|example| line(format!("- {example}")));
        }
        line("\n| why a message was delivered again | times |\n|---|---|".to_owned());
        for (cause, count) in &verdict.explained_duplicates {
            line(format!("| {} | {count} |", word(cause)));
        }
        line(
            "\n| call without an answer | calls | messages that it can explain | explained |\n|---|---|---|---|"
                .to_owned(),
        );
        for (kind, excuse) in &verdict.excuses {
            line(format!(
                "| {kind} | {} | {} | {} |",
                excuse.calls, excuse.available, excuse.used
            ));
        }
        line("\n| fault | seen | recoveries | p50 ms | max ms |\n|---|---|---|---|---|".to_owned());
        let mut faults = ran.traced.clone();
        faults.extend(self.recoveries.handlers.clone());
        for kind in self.recoveries.by_fault.keys() {
            faults.entry(kind.clone()).or_insert(0);
        }
        for (fault, count) in &faults {
            let recovery = self.recoveries.by_fault.get(fault).map_or_else(
                || "| - | - | - |".to_owned(),
                |by| format!("| {} | {} | {} |", by.count, by.p50, by.max),
            );
            let count = if *count == 0 {
                "-".to_owned()
            } else {
                count.to_string()
            };
            line(format!("| {fault} | {count} {recovery}"));
        }
        page
    }
}

fn word(kind: &impl serde::Serialize) -> String {
    serde_json::to_value(kind)
        .ok()
        .and_then(|value| value.as_str().map(str::to_owned))
        .unwrap_or_default()
}
