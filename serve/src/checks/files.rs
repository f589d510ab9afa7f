//! Checks the readers of the tokens file and of patterns for queue names.

use crate::edge::auth::{NamePattern, Right, TokensFile};
use crate::edge::shown::steers;

/// Checks the reader of the tokens file. An accepted file gives access only to a token whose hash
/// is in the file. A refusal quotes neither keys nor hashes.
pub fn http_tokens(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match TokensFile::parse(text) {
        Ok(file) => {
            // `KNOWN_SHA256` is the hash of the token "dueq_1"; a line of the corpus has it.
            let is_known = text.to_lowercase().contains(KNOWN_SHA256);
            if let Some(principal) = file.principal("dueq_1") {
                assert!(is_known, "{text}");
                assert!(file.named(principal.name()).is_some());
                assert!(
                    !principal.name().is_empty() && !principal.name().contains(char::is_control)
                );
                assert!(principal.has(Right::Read), "each role can read");
            }
            for other in ["", "dueq_", "dueq_2", "dueq_1 "] {
                assert!(file.principal(other).is_none(), "{other:?}");
            }
        }
        Err(reason) => {
            assert!(
                !reason.is_empty() && reason.len() < 1_000 + 8 * text.len(),
                "{text}"
            );
            assert!(!reason.contains(steers), "{reason:?}");
            for field in ["signing_key = \"", "sha256 = \""] {
                let values = text
                    .split(field)
                    .skip(1)
                    .filter_map(|rest| rest.split('"').next());
                let mut secrets = values.filter(|value| value.len() > 8);
                assert!(!secrets.any(|secret| reason.contains(secret)), "{reason:?}");
            }
        }
    }
}

/// The hash of the token `dueq_1`: the output of `printf dueq_1 | sha256sum`.
const KNOWN_SHA256: &str = "b0243f8e71e3dd3b274092e4ba9761f196a3d9d2c8c291a306ac398906c3640b";

/// The bytes are a pattern of queue names and a name, separated by a NUL. The matcher must agree
/// with an independent matcher that tries every length for each `*`.
pub fn http_pattern(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let (pattern, name) = text.split_once('\0').unwrap_or((text, "orders"));
    let parsed = match pattern.parse::<NamePattern>() {
        Ok(parsed) => parsed,
        Err(reason) => {
            assert!(!reason.contains(steers), "{reason:?}");
            return;
        }
    };
    assert_eq!(parsed.to_string(), pattern);
    let (wanted, given): (Vec<_>, Vec<_>) = (pattern.chars().collect(), name.chars().collect());
    assert_eq!(
        parsed.matches(name),
        matches(&wanted, &given),
        "{pattern:?} {name:?}"
    );
    if let Some(only) = parsed.name() {
        assert_eq!(parsed.matches(name), only == name);
    }
}

/// The independent matcher: whether the pattern matches the name, by a table of all prefixes.
fn matches(pattern: &[char], name: &[char]) -> bool {
    // `fits[n]`: whether the part of the pattern read so far matches the first n characters.
    let mut fits = vec![false; name.len() + 1];
    fits[0] = true;
    for wanted in pattern {
        let mut next = vec![false; fits.len()];
        for n in 0..fits.len() {
            next[n] = match wanted {
                '*' => fits[n] || (n > 0 && next[n - 1]),
                wanted => n > 0 && fits[n - 1] && (*wanted == '?' || *wanted == name[n - 1]),
            };
        }
        fits = next;
    }
    fits[name.len()]
}
