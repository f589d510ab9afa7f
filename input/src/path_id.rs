//! Ids of messages in the path of a URL.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::Error;
use crate::error::quoted;

/// Reads the id of a message from a segment of a URL's path. There are two spellings:
///
/// - UTF-8, percent-encoded where needed: `order:42`, `k%C3%A4se`;
/// - `~` and base64url without padding, for every id: `~b3JkZXIvNDI`. Proxies decode `%2F`, and so
///   break an id with a slash in the first spelling.
///
/// `%7E` is the character `~`, as in any other name: a client that percent-encodes every id reaches
/// the id `~a` by it. Proxies may decode it, so [`id_path`] writes such an id in the second
/// spelling. The library checks the length and the bytes of the id when it is used.
///
/// # Errors
/// If the segment is empty or in neither spelling.
///
/// ```
/// use dueq_input::path_id;
///
/// assert_eq!(path_id("order:42"), Ok(b"order:42".to_vec()));
/// assert_eq!(path_id("~b3JkZXIvNDI"), Ok(b"order/42".to_vec()));
/// ```
pub fn path_id(segment: &str) -> Result<Vec<u8>, Error> {
    let id = match segment.strip_prefix('~') {
        Some(encoded) => URL_SAFE_NO_PAD.decode(encoded).map_err(|_| {
            Error::new(format!(
                "the id {} is not ~ and base64url without padding; write %7E for a ~ at the beginning of an id",
                quoted(segment)
            ))
        })?,
        None => {
            let decoded = percent_decoded(segment)?;
            if std::str::from_utf8(&decoded).is_err() {
                return Err(Error::new(format!(
                    "the id {} is not UTF-8: write it as ~ and base64url without padding",
                    quoted(segment)
                )));
            }
            decoded
        }
    };
    if id.is_empty() {
        return Err(Error::new(format!(
            "the id {} is empty: an id has 1 to 200 bytes",
            quoted(segment)
        )));
    }
    Ok(id)
}

/// The path segment that [`path_id`] reads as this id. Proxies and clients do not change it, and it
/// needs no escape in HTML.
///
/// It must follow a slash: at the beginning of a relative URL, its colon would end a scheme.
///
/// ```
/// use dueq_input::id_path;
///
/// assert_eq!(id_path(b"order:42"), "order:42");
/// assert_eq!(id_path(b"order/42"), "~b3JkZXIvNDI");
/// ```
pub fn id_path(id: &[u8]) -> String {
    // Clients resolve the segments `.` and `..`.
    let is_plain = !id.starts_with(b"~")
        && !matches!(id, b"" | b"." | b"..")
        && id.iter().all(|byte| is_stable(*byte));
    match std::str::from_utf8(id) {
        Ok(text) if is_plain => text.to_owned(),
        _ => format!("~{}", URL_SAFE_NO_PAD.encode(id)),
    }
}

/// Whether a URL may have this byte in a path as it is: clients and proxies never percent-encode it.
pub(crate) fn is_stable(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~:@".contains(&byte)
}

fn percent_decoded(segment: &str) -> Result<Vec<u8>, Error> {
    let mut decoded = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            decoded.push(*first);
            continue;
        }
        let digit = |at: usize| char::from(*after.get(at)?).to_digit(16);
        let (Some(high), Some(low)) = (digit(0), digit(1)) else {
            return Err(Error::new(format!(
                "the id {} has a % without two hexadecimal digits: write %25 for a %",
                quoted(segment)
            )));
        };
        decoded.push((high * 16 + low) as u8);
        rest = &after[2..];
    }
    Ok(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_of_an_id_are_read() {
        for (segment, id) in [
            ("order:42", &b"order:42"[..]),
            ("a%2Fb", b"a/b"),
            ("k%c3%A4se", "k\u{e4}se".as_bytes()),
            ("k\u{e4}se", "k\u{e4}se".as_bytes()),
            ("a+b", b"a+b"),
            ("100%25", b"100%"),
            ("%2525", b"%25"),
            ("a~b", b"a~b"),
            ("~YS9i", b"a/b"),
            ("%7EYS9i", b"~YS9i"),
            ("%7e", b"~"),
            ("~_w", b"\xff"),
            ("~fg", b"~"),
        ] {
            assert_eq!(path_id(segment).as_deref(), Ok(id), "{segment}");
        }
    }

    #[test]
    fn invalid_segment_is_refused_with_a_remedy() {
        for (segment, reason) in [
            ("", "is empty"),
            ("~", "is empty"),
            ("%", "write %25"),
            ("%4", "write %25"),
            ("%+1", "write %25"),
            ("%\u{e4}", "write %25"),
            ("%FF", "is not UTF-8"),
            ("~YQ==", "without padding"),
            ("~YR", "without padding"),
            ("~a/b", "without padding"),
            ("~a+b", "without padding"),
            ("~\u{e4}", "without padding"),
        ] {
            let error = path_id(segment).expect_err(segment);
            assert!(error.to_string().contains(reason), "{segment}: {error}");
        }
    }

    #[test]
    fn written_id_path_is_stable_and_read_back() {
        for (id, path) in [
            (&b"order:42"[..], "order:42"),
            (b"019ac3-f_2.x@y~", "019ac3-f_2.x@y~"),
            (b".", "~Lg"),
            (b"..", "~Li4"),
            (b"~a", "~fmE"),
            (b"a/b", "~YS9i"),
            (b"a b", "~YSBi"),
            (b"a%b", "~YSVi"),
            (b"a;b", "~YTti"),
            (b"\xff", "~_w"),
            ("k\u{e4}se".as_bytes(), "~a8Okc2U"),
        ] {
            assert_eq!(id_path(id), path);
            assert_eq!(path_id(path).as_deref(), Ok(id), "{path}");
        }
    }
}
