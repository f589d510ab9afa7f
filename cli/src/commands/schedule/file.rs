//! Reads a file of schedules, and reports all its faults with their lines.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::SystemTime;

use dueq_input::{DeclaredSchedule, Given, GivenValue, Notation, ScheduleFault};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::output::visible;

/// Reads a file. `now` is the time after which its schedules must fire. Faults are located by line.
pub(crate) fn read(
    text: &str,
    now: SystemTime,
) -> Result<Vec<DeclaredSchedule>, Vec<ScheduleFault>> {
    let (file, errors) = DeTable::parse_recoverable(text);
    let mut reader = Reader {
        text,
        faults: Vec::new(),
    };
    if !errors.is_empty() {
        for error in errors {
            let reason = visible(error.message().replace('\n', ", ").as_bytes());
            let line = reader.line_of(error.span().unwrap_or_default());
            reader.fault(line, reason);
        }
        return Err(reader.faults);
    }
    let list = reader.list(file.get_ref());
    let (schedules, faults) = dueq_input::schedules(&list, Notation::Toml, now);
    let mut all = reader.faults;
    all.extend(faults);
    if all.is_empty() {
        return Ok(schedules);
    }
    all.sort_by_key(|fault| fault.place);
    Err(all)
}

struct Reader<'a> {
    text: &'a str,
    faults: Vec<ScheduleFault>,
}

impl Reader<'_> {
    fn fault(&mut self, line: usize, reason: impl Into<String>) {
        self.faults.push(ScheduleFault {
            place: line,
            name: None,
            reason: reason.into(),
        });
    }

    /// The number of the line where a span begins.
    fn line_of(&self, span: Range<usize>) -> usize {
        let before = self.text.as_bytes().get(..span.start).unwrap_or_default();
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }

    /// The entries of all `[[schedule]]` tables.
    fn list(&mut self, file: &DeTable<'_>) -> Vec<Given> {
        let mut list = Vec::new();
        let mut is_declared = false;
        for (key, value) in file {
            if key.get_ref() != "schedule" {
                self.unknown(key);
                continue;
            }
            is_declared = true;
            match value.get_ref() {
                DeValue::Array(items) => list.extend(items.iter().map(|item| self.given(item))),
                _ => {
                    let line = self.line_of(key.span());
                    let reason = "schedule is no list: write [[schedule]] above each schedule";
                    self.fault(line, reason);
                }
            }
        }
        if !is_declared && self.faults.is_empty() {
            self.fault(
                1,
                "the file has no [[schedule]]: to declare none, write schedule = []",
            );
        }
        list
    }

    fn unknown(&mut self, key: &Spanned<Cow<'_, str>>) {
        let name = key.get_ref();
        let advice = match strsim::osa_distance("schedule", name) {
            0..=2 => "did you mean schedule?",
            _ => "write [[schedule]] above each schedule",
        };
        let line = self.line_of(key.span());
        self.fault(line, format!("there is no key {name:?}: {advice}"));
    }

    fn given(&self, value: &Spanned<DeValue<'_>>) -> Given {
        let given = match value.get_ref() {
            DeValue::String(text) => GivenValue::Text(text.to_string()),
            DeValue::Integer(number) => {
                let whole = i128::from_str_radix(number.as_str(), number.radix());
                match whole {
                    Ok(whole) => GivenValue::Integer(whole, number.to_string()),
                    Err(_) => GivenValue::Number(number.to_string()),
                }
            }
            DeValue::Float(number) => GivenValue::Number(number.as_str().to_owned()),
            DeValue::Boolean(is) => GivenValue::Is(*is),
            DeValue::Datetime(time) => GivenValue::Time(time.to_string()),
            DeValue::Array(items) => {
                GivenValue::List(items.iter().map(|item| self.given(item)).collect())
            }
            DeValue::Table(entries) => {
                let fields = entries.iter().map(|(key, value)| {
                    let line = self.line_of(key.span());
                    (key.get_ref().to_string(), (line, self.given(value)))
                });
                GivenValue::Table(fields.collect::<BTreeMap<_, _>>())
            }
        };
        Given {
            place: self.line_of(value.span()),
            value: given,
        }
    }
}
