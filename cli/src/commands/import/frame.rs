//! The frame of a delayed element in Redisson: a random id, a length, and the encoded value.
//!
//! Redisson packs it by the struct library of Redis's Lua, with the byte order and the sizes of the
//! server's machine:
//!
//! - `Bc0Lc0`, at least in Redisson 3.30 to 4.7: the length of the id in one byte, the id, the
//!   length of the value as a C `long`, the value;
//! - `dLc0`, at least in Redisson 3.16: the id as a `double`, the length of the value, the value.
//!
//! A `long` has 8 bytes, little-endian, on common machines; frames of a 32-bit Redis cannot be
//! read. The lengths in a frame must add up to its size. The first format that fits is taken.

/// The parts of an element.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    /// Redisson's random id, which distinguishes equal elements.
    pub(crate) id: &'a [u8],
    /// The element as Redisson's codec wrote it.
    pub(crate) value: &'a [u8],
}

/// Parses a member of the ZSET or of the list; `None` if it is not a frame.
pub(crate) fn parse(member: &[u8]) -> Option<Frame<'_>> {
    let current = member
        .split_first()
        .and_then(|(&length, rest)| rest.split_at_checked(usize::from(length)));
    // Redisson never wrote ids of 7 bytes, but a `double` may begin with the byte 7. An id above 64
    // bytes would give too long a message id.
    let current = current.filter(|(id, _)| (8..=64).contains(&id.len()));
    [current, member.split_at_checked(8)]
        .into_iter()
        .flatten()
        .find_map(|(id, rest)| {
            Some(Frame {
                id,
                value: counted(rest)?,
            })
        })
}

/// The bytes after a length prefix, if it equals their number.
fn counted(bytes: &[u8]) -> Option<&[u8]> {
    let (length, value) = bytes.split_first_chunk()?;
    (u64::from_le_bytes(*length) == value.len() as u64).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: [u8; 8] = *b"\x82\x18\x61\xad\xf9\x1f\x1a\x21";

    fn frame(parts: &[&[u8]]) -> Vec<u8> {
        parts.concat()
    }

    #[test]
    fn both_frame_formats_are_parsed_at_every_size() {
        for value in [&b""[..], b"x", b"\0", &[0; 300], &[8; 70_000]] {
            let length = (value.len() as u64).to_le_bytes();
            for member in [
                frame(&[&[8], &ID, &length, value]),
                frame(&[&ID, &length, value]),
            ] {
                assert_eq!(
                    parse(&member),
                    Some(Frame { id: &ID, value }),
                    "{} bytes",
                    value.len()
                );
            }
        }
    }

    /// One `double` in 256 begins with the byte 7, like an id of 7 bytes. A captured frame did.
    #[test]
    fn double_id_is_not_mistaken_for_a_short_id() {
        for first in 0..=255 {
            let mut id = ID;
            id[0] = first;
            let member = frame(&[&id, &2_u64.to_le_bytes(), b"ab"]);
            assert_eq!(
                parse(&member),
                Some(Frame {
                    id: &id,
                    value: b"ab"
                }),
                "{first}"
            );
        }
    }

    #[test]
    fn frame_with_wrong_lengths_is_refused() {
        let good = frame(&[&[8], &ID, &3_u64.to_le_bytes(), b"abc"]);
        for end in 0..good.len() {
            assert_eq!(parse(&good[..end]), None, "cut at {end}");
        }
        assert_eq!(parse(&frame(&[&good, b"d"])), None);
        assert_eq!(parse(b"plain text that somebody added"), None);
        assert_eq!(parse(&[0; 9]), None, "an empty id");
        assert_eq!(
            parse(&frame(&[&[8], &ID, &u64::MAX.to_le_bytes(), b"abc"])),
            None
        );
    }
}
