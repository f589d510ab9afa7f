//! The figures of a simulation.

use serde_json::{Value, json};

use super::node::Call;
use super::server::Us;

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Figures {
    commands: f64,
    idle_from: Us,
    idle_commands_per_s: f64,
    busy_from: Us,
    busy_commands_per_s: f64,
    pub(super) instants: u64,
    claims: u64,
    promotes: u64,
    lateness: Vec<u32>,
    gaps: u64,
    pub(super) longest_gap: Us,
}

impl Figures {
    pub(super) fn start_idle(&mut self, now: Us) {
        *self = Self {
            idle_from: now,
            ..Self::default()
        };
    }

    /// `other` counts commands that are no calls of scripts.
    pub(super) fn start_busy(&mut self, now: Us, other: f64) {
        let idle_commands_per_s = (self.commands + other) * 1e6 / (now - self.idle_from) as f64;
        *self = Self {
            busy_from: now,
            idle_commands_per_s,
            ..Self::default()
        };
    }

    pub(super) fn end(&mut self, now: Us, other: f64) {
        self.busy_commands_per_s = (self.commands + other) * 1e6 / (now - self.busy_from) as f64;
        self.lateness.sort_unstable();
    }

    pub(super) fn called(&mut self, call: Call) {
        self.commands += 1.0;
        match call {
            Call::Claim { .. } => self.claims += 1,
            Call::Promote => self.promotes += 1,
            Call::Beat(_) | Call::Leave | Call::Watch { .. } => {}
        }
    }

    /// A pop that took a token is followed by another.
    pub(super) fn pop(&mut self) {
        self.commands += 1.0;
    }

    pub(super) fn acked(&mut self) {
        self.commands += 1.0;
    }

    pub(super) fn pushed(&mut self) {
        self.commands += 1.0;
        self.instants += 1;
    }

    pub(super) fn handled(&mut self, late: Us) {
        self.lateness.push(u32::try_from(late).unwrap_or(u32::MAX));
    }

    pub(super) fn unattended(&mut self, gap: Us) {
        self.gaps += u64::from(gap > 0);
        self.longest_gap = self.longest_gap.max(gap);
    }

    pub(super) fn calls_per_instant(&self) -> f64 {
        (self.claims + self.promotes) as f64 / self.instants as f64
    }

    /// The lateness that this part of all messages does not exceed, in milliseconds.
    pub(super) fn late_ms(&self, part: f64) -> f64 {
        let last = self.lateness.len().saturating_sub(1);
        let index = (last as f64 * part).round() as usize;
        self.lateness
            .get(index)
            .map_or(0.0, |us| f64::from(*us) / 1e3)
    }

    pub(super) fn handled_count(&self) -> usize {
        self.lateness.len()
    }

    pub(super) fn json(&self) -> Value {
        let each = |calls: u64| calls as f64 / self.instants as f64;
        json!({
            "due_instants": self.instants,
            "handled": self.handled_count(),
            "calls_per_instant": self.calls_per_instant(),
            "claim_calls_per_instant": each(self.claims),
            "promote_calls_per_instant": each(self.promotes),
            "late_p50_ms": self.late_ms(0.5),
            "late_p99_ms": self.late_ms(0.99),
            "late_worst_ms": self.late_ms(1.0),
            "idle_commands_per_s": self.idle_commands_per_s,
            "busy_commands_per_s": self.busy_commands_per_s,
            "times_unattended": self.gaps,
            "longest_unattended_ms": self.longest_gap as f64 / 1e3,
        })
    }
}
