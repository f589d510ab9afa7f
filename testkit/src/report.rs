//! The figures of a run, with rules and goals: as a table, and as JSON.

use anyhow::{Result, ensure};
use serde_json::{Map, Value, json};

/// The most violations that are described.
const SHOWN: usize = 10;

/// The figures of all scenarios.
#[derive(Default)]
pub struct Report {
    scenario: String,
    rows: Vec<Row>,
}

/// Counts violations, and keeps the first ones as text.
#[derive(Debug, Default)]
pub struct Violations {
    count: usize,
    first: Vec<String>,
}

struct Row {
    scenario: String,
    name: &'static str,
    value: Value,
    wanted: Option<Wanted>,
}

struct Wanted {
    text: String,
    is_met: bool,
    /// Whether it is a rule of dueq, which must hold on a slow machine too; else it is a goal.
    is_rule: bool,
}

impl Report {
    /// Begins a scenario: the following figures belong to it.
    pub fn scenario(&mut self, name: &str) {
        name.clone_into(&mut self.scenario);
    }

    /// Adds the rule that there are no violations.
    pub fn violations(&mut self, violations: &Violations) {
        let text = violations.summary();
        let is_met = text.is_none();
        self.rule(
            "violations",
            text.as_deref().unwrap_or("none"),
            "none",
            is_met,
        );
    }

    /// Adds a figure without a rule or a goal.
    pub fn figure(&mut self, name: &'static str, value: impl Into<Value>) {
        self.row(name, value.into(), None);
    }

    /// Adds a figure with a goal, because it depends on the machine. A missed goal fails the run
    /// only with `--strict`.
    pub fn goal(
        &mut self,
        name: &'static str,
        value: impl Into<Value>,
        text: impl Into<String>,
        is_met: bool,
    ) {
        let (text, is_rule) = (text.into(), false);
        self.row(
            name,
            value.into(),
            Some(Wanted {
                text,
                is_met,
                is_rule,
            }),
        );
    }

    /// Adds a figure with a rule, which must hold on a slow machine too. A broken rule fails the
    /// run.
    pub fn rule(
        &mut self,
        name: &'static str,
        value: impl Into<Value>,
        text: impl Into<String>,
        is_met: bool,
    ) {
        let (text, is_rule) = (text.into(), true);
        self.row(
            name,
            value.into(),
            Some(Wanted {
                text,
                is_met,
                is_rule,
            }),
        );
    }

    fn row(&mut self, name: &'static str, value: Value, wanted: Option<Wanted>) {
        self.rows.push(Row {
            scenario: self.scenario.clone(),
            name,
            value,
            wanted,
        });
    }

    /// The rules that are broken, and the goals that are missed if `strict`.
    pub fn failures(&self, strict: bool) -> Vec<String> {
        let failed = |row: &&Row| {
            let wanted = row.wanted.as_ref();
            wanted.is_some_and(|wanted| !wanted.is_met && (wanted.is_rule || strict))
        };
        self.rows
            .iter()
            .filter(failed)
            .map(|row| {
                let wanted = row.wanted.as_ref().map_or("", |wanted| &wanted.text);
                let value = text(&row.value);
                format!("{}: {} is {value}, wanted {wanted}", row.scenario, row.name)
            })
            .collect()
    }

    /// The table, with a line for each figure.
    pub fn table(&self) -> String {
        let width = |of: fn(&Row) -> &str| {
            let widths = self.rows.iter().map(|row| of(row).chars().count());
            widths.max().unwrap_or(0)
        };
        let (first, second) = (width(|row| &row.scenario), width(|row| row.name));
        let line = |row: &Row| {
            let (wanted, verdict) = match &row.wanted {
                None => (String::new(), ""),
                Some(wanted) => (
                    format!(", wanted {}", wanted.text),
                    match (wanted.is_met, wanted.is_rule) {
                        (true, _) => "met",
                        (false, true) => "BROKEN",
                        (false, false) => "missed",
                    },
                ),
            };
            let (scenario, name, value) = (&row.scenario, row.name, text(&row.value));
            format!("{scenario:first$}  {name:second$}  {verdict:6}  {value}{wanted}")
        };
        self.rows.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// Prints the table or JSON. Fails if a rule is broken, or if a goal is missed and `strict`.
    pub fn print(&self, as_json: bool, strict: bool) -> Result<()> {
        match as_json {
            true => println!("{:#}", self.json()),
            false => println!("{}", self.table()),
        }
        let failures = self.failures(strict);
        ensure!(failures.is_empty(), "not met: {}", failures.join("; "));
        Ok(())
    }

    /// An object for each scenario, and the broken rules and missed goals.
    pub fn json(&self) -> Value {
        let mut scenarios = Map::new();
        for row in &self.rows {
            let scenario = scenarios.entry(&row.scenario).or_insert_with(|| json!({}));
            scenario[row.name] = row.value.clone();
        }
        scenarios.insert("broken".to_owned(), json!(self.failures(false)));
        scenarios.insert("broken_or_missed".to_owned(), json!(self.failures(true)));
        Value::Object(scenarios)
    }
}

impl Violations {
    /// Adds a violation.
    pub fn add(&mut self, violation: String) {
        self.count += 1;
        if self.first.len() < SHOWN {
            self.first.push(violation);
        }
    }

    /// The first violation, and the number of further ones; `None` if there is none.
    pub fn summary(&self) -> Option<String> {
        (self.count > 0).then(|| {
            let others = match self.count - self.first.len() {
                0 => String::new(),
                others => format!(", and {others} more"),
            };
            format!("{}{others}", self.first.join(", "))
        })
    }

    /// The first violations, as text.
    pub fn texts(&self) -> &[String] {
        &self.first
    }
}

fn text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// Rounds to three decimals.
pub fn rounded(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

/// Converts microseconds to milliseconds, rounded.
pub fn ms(us: u64) -> f64 {
    rounded(us as f64 / 1_000.0)
}

/// The value that this part of all values does not exceed; 0 without values.
pub fn quantile(values: &mut [u64], part: f64) -> u64 {
    values.sort_unstable();
    let index = (values.len().saturating_sub(1) as f64 * part).round() as usize;
    values.get(index).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_goal_fails_only_a_strict_run() {
        let mut report = Report::default();
        report.scenario("rate");
        report.goal("share", 0.5, "at least 0.97", false);
        assert!(report.failures(false).is_empty());
        assert_eq!(
            report.failures(true),
            ["rate: share is 0.5, wanted at least 0.97"]
        );
        report.rule("most", 101, "at most 100", false);
        report.rule("least", 1, "at least 1", true);
        assert_eq!(
            report.failures(false),
            ["rate: most is 101, wanted at most 100"]
        );
        assert_eq!(report.json()["rate"]["most"], 101);
        assert!(report.table().contains("BROKEN"), "{}", report.table());
    }

    #[test]
    fn quantile_is_always_one_of_the_values() {
        assert_eq!(quantile(&mut [], 0.5), 0);
        assert_eq!(quantile(&mut [7], 0.99), 7);
        assert_eq!(quantile(&mut [3, 1, 2], 0.5), 2);
    }
}
