//! A value in TOML or JSON, with its place in the declaration.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

/// A value of a declaration, and its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Given {
    /// The place of the value, by which [faults](crate::ScheduleFault) are located: a line of a
    /// file, or the number of the schedule in a list.
    pub place: usize,
    /// The value.
    pub value: GivenValue,
}

/// The kinds of values that TOML and JSON have.
#[derive(Debug, Clone, PartialEq)]
pub enum GivenValue {
    /// The `null` of JSON.
    Null,
    /// A string.
    Text(String),
    /// A whole number, and its spelling.
    Integer(i128, String),
    /// Any other number, as its spelling.
    Number(String),
    /// A boolean.
    Is(bool),
    /// A date or a time of TOML.
    Time(String),
    /// An array.
    List(Vec<Given>),
    /// A table or an object. Each key has its own place.
    Table(BTreeMap<String, (usize, Given)>),
}

impl GivenValue {
    /// The kind of the value, for errors.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Text(_) => "a string",
            Self::Integer(..) | Self::Number(_) => "a number",
            Self::Is(_) => "a boolean",
            Self::Time(_) => "a time",
            Self::List(_) => "an array",
            Self::Table(_) => "a table",
        }
    }
}

impl From<GivenValue> for Given {
    fn from(value: GivenValue) -> Self {
        Self { place: 0, value }
    }
}

impl Given {
    /// Gives the value, and all values within it, this place.
    pub(super) fn set_place(&mut self, place: usize) {
        self.place = place;
        match &mut self.value {
            GivenValue::List(items) => items.iter_mut().for_each(|item| item.set_place(place)),
            GivenValue::Table(fields) => {
                for (of_key, field) in fields.values_mut() {
                    *of_key = place;
                    field.set_place(place);
                }
            }
            _ => {}
        }
    }
}

/// Values parsed from JSON have the place 0. An object with a repeated field is refused.
impl<'de> Deserialize<'de> for Given {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_any(AnyValue).map(Self::from)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = GivenValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<GivenValue, E> {
        Ok(GivenValue::Null)
    }

    fn visit_bool<E>(self, is: bool) -> Result<GivenValue, E> {
        Ok(GivenValue::Is(is))
    }

    fn visit_u64<E>(self, number: u64) -> Result<GivenValue, E> {
        Ok(GivenValue::Integer(number.into(), number.to_string()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<GivenValue, E> {
        Ok(GivenValue::Integer(number.into(), number.to_string()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<GivenValue, E> {
        Ok(GivenValue::Number(number.to_string()))
    }

    fn visit_str<E>(self, text: &str) -> Result<GivenValue, E> {
        Ok(GivenValue::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<GivenValue, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(GivenValue::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<GivenValue, A::Error> {
        let mut fields = BTreeMap::new();
        while let Some((name, value)) = object.next_entry::<String, Given>()? {
            if fields.contains_key(&name) {
                return Err(A::Error::custom(format!("duplicate field {name:?}")));
            }
            fields.insert(name, (0, value));
        }
        Ok(GivenValue::Table(fields))
    }
}
