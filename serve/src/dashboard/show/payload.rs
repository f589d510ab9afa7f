//! Formats payloads: as folded JSON, as text, or as a hex dump.

use std::fmt;
use std::fmt::Write;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::dashboard::show::{Markup, number, text};

/// The deepest level of JSON that is foldable. Deeper values are shown as text.
const MAX_DEPTH: usize = 12;
/// The most JSON values that are foldable. The rest is shown as text.
const MAX_VALUES: usize = 2_000;
/// The number of levels that are open when the page loads.
const OPEN_DEPTH: usize = 2;

/// A payload as a page shows it.
pub(in crate::dashboard) struct Payload {
    /// `JSON`, `text` or `bytes`.
    pub(in crate::dashboard) kind: &'static str,
    pub(in crate::dashboard) markup: Markup,
}

/// Formats a payload, or the first part of one.
pub(in crate::dashboard) fn payload(bytes: &[u8]) -> Payload {
    let Ok(whole) = std::str::from_utf8(bytes) else {
        return Payload {
            kind: "bytes",
            markup: Markup::of(pre(&dump(bytes))),
        };
    };
    let is_container = whole.trim_start().starts_with(['{', '[']);
    let json = serde_json::from_str::<&RawValue>(whole);
    match json {
        Ok(json) if is_container => {
            let mut folded = String::from("<div class=\"json other\">");
            let mut left = MAX_VALUES;
            fold(json.get(), 0, &mut left, &mut folded);
            folded.push_str("</div>");
            Payload {
                kind: "JSON",
                markup: Markup::of(folded),
            }
        }
        _ => Payload {
            kind: "text",
            markup: Markup::of(pre(&lines(whole))),
        },
    }
}

fn pre(shown: &str) -> String {
    format!(
        "<pre class=\"other\" tabindex=\"0\">{}</pre>",
        Markup::escaped(shown)
    )
}

/// Escapes the text, and keeps its line ends and tabs.
fn lines(whole: &str) -> String {
    let mut shown = String::with_capacity(whole.len());
    for part in whole.split_inclusive(['\n', '\t']) {
        let (kept, end) = match part.as_bytes().last() {
            Some(b'\n') => (&part[..part.len() - 1], "\n"),
            Some(b'\t') => (&part[..part.len() - 1], "\t"),
            _ => (part, ""),
        };
        shown.push_str(&text(kept));
        shown.push_str(end);
    }
    shown
}

/// A hex dump with sixteen bytes a line: the offset, the bytes as hexadecimal digits, and the ASCII
/// characters.
fn dump(bytes: &[u8]) -> String {
    let mut shown = String::with_capacity(bytes.len() * 5);
    for (line, sixteen) in bytes.chunks(16).enumerate() {
        let _ = write!(shown, "{:06x} ", line * 16);
        for byte in sixteen {
            let _ = write!(shown, " {byte:02x}");
        }
        shown.extend(std::iter::repeat_n(' ', (16 - sixteen.len()) * 3 + 2));
        let is_plain = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
        shown.extend(sixteen.iter().map(|byte| {
            if is_plain(*byte) {
                char::from(*byte)
            } else {
                '.'
            }
        }));
        shown.push('\n');
    }
    shown
}

/// Writes a JSON value: objects and lists as foldable elements, all others as the payload spells
/// them. Numbers and repeated keys stay as they were pushed, because each level is read as raw
/// text.
fn fold(raw: &str, depth: usize, left: &mut usize, out: &mut String) {
    let raw = raw.trim();
    *left = left.saturating_sub(1);
    let is_container = raw.starts_with(['{', '[']);
    let entries = (is_container && depth < MAX_DEPTH && *left > 0)
        .then(|| entries(raw))
        .flatten()
        .filter(|entries| entries.len() <= *left);
    let Some(entries) = entries else {
        let _ = write!(out, "<code>{}</code>", Markup::escaped(&lines(raw)));
        return;
    };
    let (what, close) = match raw.starts_with('{') {
        true => ("field", ["{", "}"]),
        false => ("item", ["[", "]"]),
    };
    if entries.is_empty() {
        let _ = write!(out, "<code>{}{}</code>", close[0], close[1]);
        return;
    }
    let (count, open) = (
        entries.len() as u64,
        if depth < OPEN_DEPTH { " open" } else { "" },
    );
    let plural = if count == 1 { "" } else { "s" };
    let _ = write!(
        out,
        "<details{open}><summary>{} {} {what}{plural} {}</summary><ul>",
        close[0],
        number(count),
        close[1]
    );
    for (key, value) in entries {
        out.push_str("<li>");
        if let Some(key) = key {
            let _ = write!(
                out,
                "<span class=\"key\">{}</span>: ",
                Markup::escaped(&text(&key))
            );
        }
        fold(value.get(), depth + 1, left, out);
        out.push_str("</li>");
    }
    out.push_str("</ul></details>");
}

type Entry<'a> = (Option<String>, &'a RawValue);

/// The entries of an object or a list; `None` if a key cannot be read.
fn entries(raw: &str) -> Option<Vec<Entry<'_>>> {
    if raw.starts_with('[') {
        let items = serde_json::from_str::<Vec<&RawValue>>(raw).ok()?;
        return Some(items.into_iter().map(|item| (None, item)).collect());
    }
    let Fields(fields) = serde_json::from_str(raw).ok()?;
    let named = fields.into_iter().map(|(key, value)| (Some(key), value));
    Some(named.collect())
}

/// The fields of an object, in the order in which they were pushed.
struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfObject;

        impl<'de> Visitor<'de> for OfObject {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(fields)
            }
        }

        deserializer.deserialize_map(OfObject).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(bytes: &[u8]) -> (&'static str, String) {
        let shown = payload(bytes);
        (shown.kind, shown.markup.to_string())
    }

    #[test]
    fn json_is_foldable_and_keeps_its_spelling() {
        let (kind, markup) = shown(br#"{"n": 12345678901234567890.50, "<b>": ["&", {}], "n": 1}"#);
        assert_eq!(kind, "JSON");
        for part in [
            "{ 3 fields }",
            "12345678901234567890.50",
            "<span class=\"key\">&lt;b&gt;</span>",
            "<code>&quot;&amp;&quot;</code>",
            "<code>{}</code>",
            "[ 2 items ]",
        ] {
            assert!(markup.contains(part), "{part}: {markup}");
        }
        assert!(!markup.contains("<b>"), "{markup}");
    }

    #[test]
    fn json_is_folded_up_to_a_depth_and_a_count() {
        let deep = format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000));
        let (kind, markup) = shown(deep.as_bytes());
        assert_eq!(
            (kind, markup.matches("<details").count()),
            ("JSON", MAX_DEPTH)
        );
        let fields = "{\"a\":".repeat(10_000) + "1" + &"}".repeat(10_000);
        assert_eq!(
            shown(fields.as_bytes()).1.matches("<details").count(),
            MAX_DEPTH
        );
        let long = format!("[{}0]", "[1,2,3],".repeat(8_000));
        let (_, markup) = shown(long.as_bytes());
        assert!(
            markup.matches("<li>").count() <= MAX_VALUES,
            "{}",
            markup.len()
        );
        let cut = shown(br#"{"a": [1, 2"#);
        assert_eq!(cut.0, "text");
        // The key is a lone surrogate, so it is not valid text.
        assert!(shown(br#"{"\ud800": 1}"#).1.contains("ud800"));
    }

    #[test]
    fn text_keeps_its_lines_and_binary_is_a_hex_dump() {
        let (kind, markup) = shown("a\n\t<b>\u{202e}\r\n".as_bytes());
        assert_eq!(kind, "text");
        assert!(
            markup.contains("a\n\t&lt;b&gt;\\u{202e}\\u{d}\n"),
            "{markup}"
        );
        let (kind, markup) = shown(b"\xff<script>\x00 and more");
        assert_eq!(kind, "bytes");
        assert!(markup.contains("000000  ff 3c 73"), "{markup}");
        assert!(
            markup.contains(".&lt;script&gt;. and m\n000010  6f 72 65"),
            "{markup}"
        );
        assert_eq!(shown(b"").0, "text");
    }
}
