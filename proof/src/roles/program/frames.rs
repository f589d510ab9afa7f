//! The frames of RESP, as far as scripts and their replies use it.

use dueq::harness::Reply;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Value(Reply),
    Error(String),
    /// Out of band: it answers no request.
    Push,
}

/// The first frame, and its length in bytes; `None` if more bytes must come.
pub(super) fn first(bytes: &[u8]) -> Option<(Frame, usize)> {
    let (line, after) = line(bytes, 0)?;
    let text = || String::from_utf8_lossy(&line[1..]).into_owned();
    match line.first()? {
        b'-' => Some((Frame::Error(text()), after)),
        b'!' => {
            let (value, end) = value(bytes, 0)?;
            let text = match value {
                Reply::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                _ => text(),
            };
            Some((Frame::Error(text), end))
        }
        kind => {
            let is_push = *kind == b'>';
            let (value, end) = value(bytes, 0)?;
            Some((
                if is_push {
                    Frame::Push
                } else {
                    Frame::Value(value)
                },
                end,
            ))
        }
    }
}

fn value(bytes: &[u8], at: usize) -> Option<(Reply, usize)> {
    let (line, after) = line(bytes, at)?;
    let (kind, rest) = line.split_first()?;
    let number = std::str::from_utf8(rest)
        .ok()
        .and_then(|text| text.parse::<i64>().ok());
    let parts = |parts: i64| usize::try_from(parts).ok();
    match (kind, number) {
        (b':', Some(number)) => Some((Reply::Int(number), after)),
        (b'+', _) => Some((Reply::Bytes(rest.to_vec()), after)),
        (b'$' | b'=' | b'!', Some(length)) => match parts(length) {
            None => Some((Reply::Other, after)),
            Some(length) => {
                let found = bytes.get(after..after + length)?;
                bytes.get(after + length..after + length + 2)?;
                Some((Reply::Bytes(found.to_vec()), after + length + 2))
            }
        },
        (b'*' | b'~' | b'>' | b'%', Some(count)) => {
            let Some(count) = parts(if *kind == b'%' { 2 * count } else { count }) else {
                return Some((Reply::Other, after));
            };
            let (mut list, mut end) = (Vec::new(), after);
            for _ in 0..count {
                let (part, next) = value(bytes, end)?;
                list.push(part);
                end = next;
            }
            Some((Reply::List(list), end))
        }
        _ => Some((Reply::Other, after)),
    }
}

/// The line from here, without its end; and where the next one begins.
fn line(bytes: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let rest = bytes.get(at..)?;
    let length = rest.windows(2).position(|end| end == b"\r\n")?;
    Some((&rest[..length], at + length + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_found_only_when_it_is_whole() {
        let bytes = b"*3\r\n:7\r\n$4\r\na\r\nb\r\n*2\r\n$-1\r\n+OK\r\n";
        let inner = Reply::List(vec![Reply::Other, Reply::Bytes(b"OK".to_vec())]);
        let parts = vec![Reply::Int(7), Reply::Bytes(b"a\r\nb".to_vec()), inner];
        for length in 0..bytes.len() {
            assert_eq!(first(&bytes[..length]), None, "{length}");
        }
        let whole = [&bytes[..], b":1\r\n"].concat();
        let found = Some((Frame::Value(Reply::List(parts)), bytes.len()));
        assert_eq!(first(&whole), found);
    }

    #[test]
    fn errors_and_what_is_out_of_band_are_told_apart() {
        let error = Frame::Error("NOSCRIPT none".into());
        assert_eq!(first(b"-NOSCRIPT none\r\n"), Some((error, 16)));
        assert_eq!(first(b">2\r\n+a\r\n:1\r\n"), Some((Frame::Push, 12)));
        let map = vec![Reply::Bytes(b"a".to_vec()), Reply::Int(1)];
        assert_eq!(
            first(b"%1\r\n+a\r\n:1\r\n"),
            Some((Frame::Value(Reply::List(map)), 12))
        );
    }
}
