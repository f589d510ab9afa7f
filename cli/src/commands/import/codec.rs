//! Converts an element that Redisson's codec wrote into the payload of a message.

use std::fmt;

use clap::ValueEnum;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The deepest accepted nesting of JSON.
const MAX_DEPTH: usize = 128;

/// How to convert an element.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RedissonCodec {
    /// The encoded element, byte for byte: for StringCodec the text itself, for the JSON codecs the
    /// JSON with Java's type names. Kryo (Redisson's default), Marshalling, Java serialization and
    /// others have binary forms, which only a Java worker with the same codec can read
    Raw,
    /// StringCodec: the text, checked to be UTF-8
    String,
    /// JsonJacksonCodec: the JSON without Java's type names ("@class", ["java.lang.Long", 7]);
    /// numbers and order stay
    Json,
}

impl RedissonCodec {
    pub(crate) fn payload(self, value: &[u8]) -> Result<Vec<u8>, String> {
        match self {
            Self::Raw => Ok(value.to_vec()),
            Self::String => std::str::from_utf8(value)
                .map(|text| text.as_bytes().to_vec())
                .map_err(|_| "it is not UTF-8".to_owned()),
            Self::Json => {
                let json: &RawValue = serde_json::from_slice(value)
                    .map_err(|error| format!("it is not JSON: {error}"))?;
                let mut plain = String::with_capacity(value.len());
                untyped(json, MAX_DEPTH, &mut plain).map_err(|error| {
                    format!("Java's types cannot be removed from its JSON: {error}")
                })?;
                Ok(plain.into_bytes())
            }
        }
    }
}

/// Writes a JSON value without the types that Jackson adds: drops the property `@class` of objects,
/// and replaces each pair of class and value by the value.
fn untyped(json: &RawValue, depth: usize, out: &mut String) -> Result<(), serde_json::Error> {
    let depth = depth
        .checked_sub(1)
        .ok_or_else(|| serde_json::Error::custom("it is nested deeper than 128 levels"))?;
    let text = json.get();
    if text.starts_with('[') {
        let items: Vec<&RawValue> = serde_json::from_str(text)?;
        if let [class, value] = items[..]
            && serde_json::from_str::<String>(class.get()).is_ok_and(|class| is_class_name(&class))
        {
            return untyped(value, depth, out);
        }
        out.push('[');
        for (index, item) in items.into_iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            untyped(item, depth, out)?;
        }
        out.push(']');
    } else if text.starts_with('{') {
        out.push('{');
        let mut is_first = true;
        for (name, value) in serde_json::Deserializer::from_str(text).deserialize_map(Properties)? {
            if name == "@class" {
                continue;
            }
            if !std::mem::take(&mut is_first) {
                out.push(',');
            }
            out.push_str(&serde_json::to_string(&name)?);
            out.push(':');
            untyped(value, depth, out)?;
        }
        out.push('}');
    } else {
        out.push_str(text);
    }
    Ok(())
}

/// The properties of an object in their order.
struct Properties;

impl<'de> Visitor<'de> for Properties {
    type Value = Vec<(String, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut properties = Vec::new();
        while let Some(property) = map.next_entry()? {
            properties.push(property);
        }
        Ok(properties)
    }
}

/// Whether the text has the form of a Java class name: `java.util.ArrayList`, `[Lcom.shop.Order;`,
/// `[B`, `com.shop.Order$Line`.
///
/// Jackson writes a list of two strings without a type. If its first string has this form, the
/// string is lost.
fn is_class_name(text: &str) -> bool {
    let element = text.trim_start_matches('[');
    if element.len() < text.len() && !element.starts_with('L') {
        return matches!(element, "B" | "C" | "D" | "F" | "I" | "J" | "S" | "Z");
    }
    let name = match element.len() < text.len() {
        true => element
            .strip_prefix('L')
            .and_then(|name| name.strip_suffix(';'))
            .unwrap_or_default(),
        false => element,
    };
    let is_part = |part: &str| {
        part.starts_with(|c: char| c.is_alphabetic() || c == '_')
            && part
                .chars()
                .all(|c| c.is_alphanumeric() || c == '_' || c == '$')
    };
    name.contains('.')
        && name.split('.').all(is_part)
        && name
            .rsplit('.')
            .next()
            .is_some_and(|class| class.starts_with(char::is_uppercase))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Result<String, String> {
        RedissonCodec::Json
            .payload(text.as_bytes())
            .map(|payload| String::from_utf8(payload).expect("text"))
    }

    #[test]
    fn json_codec_removes_only_jacksons_types() {
        for (typed, plain) in [
            (r#""order:42""#, r#""order:42""#),
            ("2.50", "2.50"),
            (
                r#"["java.lang.Long", 9007199254740993]"#,
                "9007199254740993",
            ),
            (
                r#"["java.util.ArrayList",[1,["java.math.BigDecimal",19.900000000000000000001]]]"#,
                "[1,19.900000000000000000001]",
            ),
            (
                r#"{"@class":"com.shop.Order","z":1,"a":{"@class":"java.util.HashMap"}}"#,
                r#"{"z":1,"a":{}}"#,
            ),
            (r#"["[B","AAEC"]"#, r#""AAEC""#),
            (r#"["[Ljava.lang.Object;",["a"]]"#, r#"["a"]"#),
            (r#"["com.shop.Order$State","PAID"]"#, r#""PAID""#),
            (r#"["www.example.com","x"]"#, r#"["www.example.com","x"]"#),
            (r#"["a","b"]"#, r#"["a","b"]"#),
            (r#"["java.util.Date",1,2]"#, r#"["java.util.Date",1,2]"#),
            (
                r#"{"same":1,"same":2,"\u00fc\n":"\ud83d\ude00"}"#,
                r#"{"same":1,"same":2,"ü\n":"\ud83d\ude00"}"#,
            ),
        ] {
            assert_eq!(json(typed).as_deref(), Ok(plain));
        }
    }

    #[test]
    fn json_codec_refuses_other_text_and_deep_nesting() {
        for bad in ["", "plain", "{", "[1", "1 2"] {
            assert!(json(bad).is_err(), "{bad:?}");
        }
        assert!(json(&format!("{}{}", "[".repeat(100_000), "]".repeat(100_000))).is_err());
        assert!(RedissonCodec::String.payload(b"\xff").is_err());
        assert_eq!(
            RedissonCodec::Raw.payload(b"\xff\0").as_deref(),
            Ok(&b"\xff\0"[..])
        );
    }
}
