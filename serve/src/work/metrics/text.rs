//! Writes Prometheus' text format.

use std::fmt::Write;

/// The text of a metrics page. A metric's samples follow its header.
#[derive(Default)]
pub(super) struct Text(String);

impl Text {
    /// Begins a metric. `kind` is `counter` or `gauge`.
    pub(super) fn metric(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Adds a sample to the current metric.
    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.0.push_str(name);
        for (number, (label, value)) in labels.iter().enumerate() {
            let opening = if number == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{opening}{label}=\"");
            for c in value.chars() {
                match c {
                    '\\' => self.0.push_str("\\\\"),
                    '"' => self.0.push_str("\\\""),
                    '\n' => self.0.push_str("\\n"),
                    c => self.0.push(c),
                }
            }
            self.0.push('"');
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }

    /// Adds a gauge without labels.
    pub(super) fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.metric(name, "gauge", help);
        self.sample(name, &[], value);
    }

    pub(super) fn into_string(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_integers_have_no_fraction() {
        let mut text = Text::default();
        text.metric("m", "counter", "Help.");
        text.sample("m", &[("queue", "a\"b\\c\nd"), ("x", "")], 1e15);
        text.gauge("g", "Other.", 0.25);
        let expected = "# HELP m Help.\n# TYPE m counter\n\
                        m{queue=\"a\\\"b\\\\c\\nd\",x=\"\"} 1000000000000000\n\
                        # HELP g Other.\n# TYPE g gauge\ng 0.25\n";
        assert_eq!(text.into_string(), expected);
    }
}
