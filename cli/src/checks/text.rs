//! Checks the escaping of text for terminals, for JSON and for shells.

use crate::shown::{guarded, guarded_json, steers, visible};

/// Unicode's characters that change the direction of writing, end lines or annotate. Control
/// characters come on top.
const INVISIBLE: &str = "\u{61c}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\
    \u{2066}\u{2067}\u{2068}\u{2069}\u{206a}\u{206b}\u{206c}\u{206d}\u{206e}\u{206f}\u{fff9}\u{fffa}\u{fffb}";

/// The bytes are printed text: the output cannot control a terminal, harmless text is unchanged,
/// and JSON keeps its value.
pub fn shown(bytes: &[u8]) {
    let printed = visible(bytes);
    assert!(
        !printed.contains(|c: char| c.is_control() || INVISIBLE.contains(c)),
        "{printed:?}"
    );
    let text = String::from_utf8_lossy(bytes);
    if !text.contains(steers) {
        assert_eq!(printed, text);
    }
    let kept: String = text.chars().filter(|c| !steers(*c)).collect();
    assert!(
        kept.chars().all(|c| printed.contains(c)),
        "{kept:?} of {printed:?}"
    );
    assert!(!guarded(&text).contains(|c| c != '\n' && steers(c)));
    assert_eq!(
        guarded(&text).lines().count(),
        text.split_inclusive('\n').count()
    );

    let value = serde_json::json!({ "text": text, (text.as_ref()): [text] });
    let json = guarded_json(&value.to_string()).into_owned();
    assert!(!json.contains(steers), "{json:?}");
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&json).expect("JSON"),
        value
    );

    let word = dueq::admin::shell_word(bytes);
    assert!(!word.contains(steers), "{word:?}");
    assert_eq!(unquoted(&word), bytes, "{word}");
}

/// Reads a quoted word as a shell does.
fn unquoted(word: &str) -> Vec<u8> {
    if let Some(format) = word
        .strip_prefix("\"$(printf '")
        .and_then(|word| word.strip_suffix("')\""))
    {
        assert!(!format.contains(['\'', '"', '`', '$', '!']), "{word}");
        let (mut bytes, mut rest) = (Vec::new(), format.as_bytes());
        while let Some((first, after)) = rest.split_first() {
            let (byte, length) = match first {
                b'%' => (after[0], 2),
                b'\\' => {
                    let octal = std::str::from_utf8(&after[..3]).expect("digits");
                    (u8::from_str_radix(octal, 8).expect("octal"), 4)
                }
                byte => (*byte, 1),
            };
            assert!(*first != b'%' || byte == b'%', "{word}");
            bytes.push(byte);
            rest = &rest[length..];
        }
        return bytes;
    }
    if let Some(quoted) = word
        .strip_prefix('\'')
        .and_then(|word| word.strip_suffix('\''))
    {
        let parts: Vec<&str> = quoted.split(r"'\''").collect();
        assert!(parts.iter().all(|part| !part.contains('\'')), "{word}");
        return parts.join("'").into_bytes();
    }
    assert!(
        !word.contains(|c: char| !c.is_alphanumeric() && !"_-.:/@%+,".contains(c)),
        "{word}"
    );
    word.as_bytes().to_vec()
}
