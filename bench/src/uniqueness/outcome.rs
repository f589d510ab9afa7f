//! The outcome of a scenario: its figures and its violations.

use comfy_table::{Table, presets};
use serde_json::{Map, Value, json};

/// How many violations are printed.
const SHOWN: usize = 10;

#[derive(Debug, Default)]
pub(crate) struct Outcome {
    figures: Vec<(&'static str, Value)>,
    pub(crate) violations: Violations,
}

/// Counts violations, and keeps the first ones as text.
#[derive(Debug, Default)]
pub(crate) struct Violations {
    count: usize,
    first: Vec<String>,
}

impl Outcome {
    pub(crate) fn new(violations: Violations) -> Self {
        Self {
            figures: Vec::new(),
            violations,
        }
    }

    pub(crate) fn figure(&mut self, name: &'static str, value: impl Into<Value>) {
        self.figures.push((name, value.into()));
    }

    fn verdict(&self) -> String {
        match self.violations.count {
            0 => "holds".to_owned(),
            count => format!("FAILED, {count} violations"),
        }
    }
}

impl Violations {
    pub(crate) fn add(&mut self, violation: String) {
        self.count += 1;
        if self.first.len() < SHOWN {
            self.first.push(violation);
        }
    }

    /// The number of violations and the first of them; `None` if there is none.
    pub(crate) fn summary(&self) -> Option<String> {
        (self.count > 0).then(|| {
            let others = match self.count - self.first.len() {
                0 => String::new(),
                others => format!(", and {others} more"),
            };
            format!("{}{others}", self.first.join(", "))
        })
    }

    #[cfg(test)]
    pub(crate) fn texts(&self) -> Vec<&str> {
        self.first.iter().map(String::as_str).collect()
    }
}

/// Prints a table with a row for each figure, or one JSON object.
pub(crate) fn report(outcomes: &[(&'static str, Outcome)], as_json: bool) {
    if as_json {
        let all: Map<String, Value> = outcomes
            .iter()
            .map(|(name, outcome)| {
                let mut figures: Map<String, Value> = outcome
                    .figures
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), value.clone()))
                    .collect();
                figures.insert("holds".to_owned(), json!(outcome.violations.count == 0));
                figures.insert("violations".to_owned(), json!(outcome.violations.first));
                ((*name).to_owned(), Value::Object(figures))
            })
            .collect();
        println!("{:#}", Value::Object(all));
        return;
    }
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_header(["scenario", "figure", "value"]);
    for (name, outcome) in outcomes {
        table.add_row([*name, "verdict", &outcome.verdict()]);
        for (figure, value) in &outcome.figures {
            table.add_row([*name, figure, &value.to_string()]);
        }
    }
    println!("{table}");
}
