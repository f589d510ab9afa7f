//! How Redisson frames a delayed element: a random id of its own, a length, the encoded value.
//!
//! Redisson packs it by the struct library of Redis's Lua, in the byte order and the sizes of Redis's machine:
//!
//! - `Bc0Lc0`, in Redisson 3.30 to 4.7 at least: the length of the id in one byte, the id, the length of the value as a C `long`,
//!   the value;
//! - `dLc0`, in Redisson 3.16 at least: the id as a `double`, the length of the value, the value.
//!
//! A `long` has 8 bytes, little-endian, on every machine that Redis is usual on; what a Redis built for 32 bits holds is not
//! read. A frame is taken only if its lengths add up to exactly its size, and by the first reading that does.

/// An element taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    /// Redisson's random id, which makes equal elements differ.
    pub(crate) id: &'a [u8],
    /// The element as Redisson's codec wrote it.
    pub(crate) value: &'a [u8],
}

/// Takes a member of the ZSET or of the list apart; `None` if it is no frame.
pub(crate) fn parse(member: &[u8]) -> Option<Frame<'_>> {
    let current = member
        .split_first()
        .and_then(|(&length, rest)| rest.split_at_checked(usize::from(length)));
    // One of 7 bytes, which Redisson never had, would look like a `double`; one beyond 64 does not fit into an id.
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

/// What follows its own length.
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
    fn both_framings_at_every_size() {
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

    /// Met in a capture: one `double` in 256 begins with a 7, as a shorter id would.
    #[test]
    fn a_double_is_taken_for_no_shorter_id() {
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
    fn what_does_not_add_up_is_no_frame() {
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
