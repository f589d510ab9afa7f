//! Checks the readers of cursors, lines and parameters of messages.

use axum::http::Uri;
use dueq::MessageState;
use dueq::inspect::MessageCursor;

use crate::edge::path::Query;
use crate::edge::problem::Problem;
use crate::routes::messages::cursor::Of;
use crate::routes::messages::lines::Lines;
use crate::routes::messages::list::List;

/// The most bytes of a line in this check.
const LONGEST: usize = 16;

/// The bytes are a cursor: once as text from a URL, once as a cursor of the library. An accepted
/// cursor is encoded as it was read, and no other list accepts it.
pub fn http_cursor(bytes: &[u8]) {
    let list = Of {
        queue: "orders",
        state: MessageState::Dead,
        newest: true,
    };
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Some(cursor) = list.cursor(text)
    {
        assert_eq!(list.text(&cursor), text);
    }
    let cursor = MessageCursor::from_bytes(bytes.to_vec());
    let text = list.text(&cursor);
    if let Some(read) = list.cursor(&text) {
        assert_eq!(read, cursor, "{text}");
    }
    for other in [
        Of {
            queue: "order",
            ..list
        },
        Of {
            queue: "orders2",
            ..list
        },
        Of {
            state: MessageState::Ready,
            ..list
        },
        Of {
            newest: false,
            ..list
        },
    ] {
        assert_eq!(other.cursor(&text), None, "{text} {other:?}");
    }
}

/// The bytes are a body of lines. However the body is split into parts, the reader finds the lines
/// between the line ends. The first byte is the size of the parts.
pub fn http_lines(bytes: &[u8]) {
    let Some((size, body)) = bytes.split_first() else {
        return;
    };
    let found = lines(body, usize::from(*size).max(1));
    let body = body.strip_suffix(b"\n").unwrap_or(body);
    let mut expected: Vec<_> = body.split(|byte| *byte == b'\n').map(Vec::from).collect();
    if body.is_empty() && bytes.len() > 1 {
        expected = vec![Vec::new()];
    }
    for (number, whole) in (1..).zip(&mut expected) {
        if whole.len() <= LONGEST && number == 1 && whole.starts_with(b"\xef\xbb\xbf") {
            whole.drain(..3);
        }
    }
    let expected = expected
        .iter()
        .map(|line| (line.len() <= LONGEST).then(|| line.trim_ascii()));
    let expected: Vec<_> = expected.map(|line| line.map(Vec::from)).collect();
    assert_eq!(found, expected);
}

/// The lines of the body, without an empty one after the last line end.
fn lines(body: &[u8], size: usize) -> Vec<Option<Vec<u8>>> {
    let (mut lines, mut found) = (Lines::new(LONGEST), Vec::new());
    for mut part in body.chunks(size) {
        while let Some(line) = lines.next(&mut part) {
            assert_eq!(line.number, found.len() as u64 + 1);
            found.push(line.text.map(Vec::from));
        }
        assert!(lines.waiting() <= LONGEST, "the memory has a bound");
    }
    let last = lines.last().text.map(Vec::from);
    if !body.ends_with(b"\n") || body.is_empty() {
        found.push(last);
    } else {
        assert_eq!(last, Some(Vec::new()));
    }
    found
}

/// Reads the parameters of a list of messages.
pub(crate) fn list(uri: &Uri) -> Result<(), Problem> {
    let Query(list) = Query::<List>::read(uri)?;
    list.check()
}
