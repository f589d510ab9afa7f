//! The life of a message, below `dueq show`.

use dueq::inspect::LifeEvent;
use serde_json::{Value, json};

use crate::output;

/// The events as JSON.
pub(super) fn fields(life: &[LifeEvent]) -> Value {
    life.iter()
        .map(|event| {
            json!({
                "at_ms": event.at_ms,
                "what": event.what,
                "due_ms": event.due_ms,
                "began_ms": event.began_ms,
                "ran_ms": event.ran_ms(),
                "node": event.node,
                "error": event.error,
            })
        })
        .collect()
}

/// Prints a line for each event, the earliest first.
pub(super) fn print(life: &[LifeEvent]) -> anyhow::Result<()> {
    for event in life {
        let ran = event.ran_ms().map(|ms| format!(", after {ms} ms"));
        let began = event
            .began_ms
            .filter(|_| ran.is_none())
            .map(|ms| format!(", began at {}", output::moment(ms)));
        let on = event.node.as_ref().map(|node| format!(" on {node}"));
        let due = event
            .due_ms
            .map(|ms| format!(", due {}", output::moment(ms)));
        let error = Some(&event.error).filter(|error| !error.is_empty());
        let error = error.map(|error| format!(": {error}"));
        let rest: String = [ran, began, on, due, error].into_iter().flatten().collect();
        output::line(&format!(
            "{}  {}{}",
            output::moment(event.at_ms),
            event.what,
            output::visible(rest.as_bytes())
        ))?;
    }
    Ok(())
}
