//! Parses declarations of schedules: tables of a TOML file, or JSON objects with equal keys.

mod given;
mod reader;
mod values;

use std::collections::{BTreeMap, HashMap};
use std::time::SystemTime;

use dueq::schedules::Schedule;

pub use self::given::{Given, GivenValue};
use self::reader::Reader;
use crate::{Error, unreadable};

/// The most faults that an [`Error`] names.
const NAMED: usize = 5;

/// The most schedules that one call declares. Checking the fires of many crons takes long.
const MOST: usize = 1_000;

/// The notation of a declaration, for the examples in faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notation {
    /// `every = "15m"`
    Toml,
    /// `"every": "15m"`
    Json,
}

/// A parsed schedule.
#[derive(Debug, Clone)]
pub struct DeclaredSchedule {
    /// The schedule. [`Schedule::check`] accepts it.
    pub schedule: Schedule,
    /// The name of the schedule.
    pub name: String,
    /// The place of the name in the declaration.
    pub place: usize,
    /// The length of the payload in bytes.
    pub payload_bytes: usize,
}

/// A reason for which a declaration is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleFault {
    /// The [place](Given::place) of the fault.
    pub place: usize,
    /// The schedule, if it has a name.
    pub name: Option<String>,
    /// The fault, with the value that is wrong, and what to do.
    pub reason: String,
}

/// Reads a list of schedules. `now` is the time after which they must fire.
///
/// Returns all faults, in order. If there are any, schedules are missing, so the whole list must be
/// refused.
///
/// ```
/// use dueq_input::{Notation, schedules};
/// use std::time::UNIX_EPOCH;
///
/// let list = serde_json::from_str::<Vec<_>>(r#"[{"name": "sync", "every": "5 apples"}]"#).unwrap();
/// let (_, faults) = schedules(&list, Notation::Json, UNIX_EPOCH);
/// assert!(faults[0].reason.contains("apples"));
/// ```
pub fn schedules(
    list: &[Given],
    notation: Notation,
    now: SystemTime,
) -> (Vec<DeclaredSchedule>, Vec<ScheduleFault>) {
    let mut reader = Reader::new(notation, now);
    let mut read = Vec::new();
    for given in list {
        match &given.value {
            GivenValue::Table(table) => read.extend(reader.schedule(given.place, table)),
            other => reader.fault(given.place, reader.no_table(other)),
        }
        reader.name = None;
    }
    refuse_repeated_names(&mut reader, &read);
    reader.faults.sort_by_key(|fault| fault.place);
    (read, reader.faults)
}

fn refuse_repeated_names(reader: &mut Reader, read: &[DeclaredSchedule]) {
    let mut places = HashMap::new();
    for declared in read {
        if let Some(first) = places.insert(declared.name.as_str(), declared.place) {
            reader.name = Some(declared.name.clone());
            let reason = match reader.notation {
                Notation::Toml => format!("line {first} declares a schedule of this name"),
                Notation::Json => format!("schedule {first} of the list has this name"),
            };
            reader.fault(declared.place, reason);
        }
    }
    reader.name = None;
}

/// Parses a schedule with this name from a JSON object. The object may contain the name as well.
///
/// # Errors
/// If the text is no such object. The error names up to five faults.
///
/// ```
/// use std::time::UNIX_EPOCH;
///
/// let text = br#"{"every": "15m", "payload": "x"}"#;
/// let declared = dueq_input::schedule_json(text, "sync", UNIX_EPOCH)?;
/// assert_eq!((&*declared.name, declared.payload_bytes), ("sync", 1));
/// # Ok::<(), dueq_input::Error>(())
/// ```
pub fn schedule_json(text: &[u8], name: &str, now: SystemTime) -> Result<DeclaredSchedule, Error> {
    let mut table = object(text)?;
    let own = GivenValue::Text(name.to_owned());
    match table.get("name") {
        Some((_, given)) if given.value != own => {
            let reason = format!("the object has another name than {name:?}: leave it out");
            return Err(Error::new(reason).of("name"));
        }
        _ => drop(table.insert("name".to_owned(), (0, own.into()))),
    }
    let (mut read, faults) = schedules(&[GivenValue::Table(table).into()], Notation::Json, now);
    match read.pop() {
        Some(declared) if faults.is_empty() => Ok(declared),
        _ => Err(named(&faults)),
    }
}

/// Parses `{"schedules": [...]}`. Each schedule needs a name. Its place is its number in the list,
/// from 1.
///
/// # Errors
/// If the text is no such object. The error names up to five faults.
///
/// ```
/// use std::time::UNIX_EPOCH;
///
/// let text = br#"{"schedules": [{"name": "sync", "every": "15m"}]}"#;
/// assert_eq!(dueq_input::schedules_json(text, UNIX_EPOCH)?.len(), 1);
/// # Ok::<(), dueq_input::Error>(())
/// ```
pub fn schedules_json(text: &[u8], now: SystemTime) -> Result<Vec<DeclaredSchedule>, Error> {
    let mut fields = object(text)?;
    let list = fields.remove("schedules");
    if let Some(name) = fields.keys().next() {
        let reason = "there is no such field: write {\"schedules\": [...]}";
        return Err(Error::new(reason).of(format!("{name:?}")));
    }
    let Some(GivenValue::List(mut list)) = list.map(|(_, given)| given.value) else {
        let reason = "write a list, such as [{\"name\": \"sync\", \"every\": \"15m\"}]";
        return Err(Error::new(reason).of("schedules"));
    };
    if list.len() > MOST {
        let reason = format!(
            "there are {}: write up to {MOST}, and make several sets of them",
            list.len()
        );
        return Err(Error::new(reason).of("schedules"));
    }
    for (given, number) in list.iter_mut().zip(1..) {
        given.set_place(number);
    }
    let (read, faults) = schedules(&list, Notation::Json, now);
    match faults.is_empty() {
        true => Ok(read),
        false => Err(named(&faults)),
    }
}

fn object(text: &[u8]) -> Result<BTreeMap<String, (usize, Given)>, Error> {
    let read: Given = serde_json::from_slice(text).map_err(|error| unreadable(text, &error))?;
    match read.value {
        GivenValue::Table(fields) => Ok(fields),
        other => Err(Error::new(format!(
            "it is {}: write an object",
            other.kind()
        ))),
    }
}

/// Combines the first faults into one error.
fn named(faults: &[ScheduleFault]) -> Error {
    let mut reasons: Vec<_> = faults.iter().take(NAMED).map(ScheduleFault::text).collect();
    if faults.len() > NAMED {
        reasons.push(format!("and {} more", faults.len() - NAMED));
    }
    Error::new(reasons.join("; "))
}

impl ScheduleFault {
    fn text(&self) -> String {
        let reason = &self.reason;
        match (&self.name, self.place) {
            (_, 0) => reason.clone(),
            (Some(name), _) => format!("schedule {name:?}: {reason}"),
            (None, number) => format!("schedule {number} of the list: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests;
