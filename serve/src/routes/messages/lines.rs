//! Splits a body into lines, in bounded memory.

use bytes::BytesMut;

/// Collects a line that arrives in several parts.
pub(super) struct Lines {
    /// The beginning of a line whose end has not come.
    begun: BytesMut,
    /// The last complete line that arrived in several parts.
    taken: BytesMut,
    /// The number of lines that have begun.
    number: u64,
    max_bytes: usize,
    /// Whether the current line is too long: its rest is dropped.
    is_too_long: bool,
}

/// A complete line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    /// The line's number, from 1.
    pub(super) number: u64,
    /// The text without surrounding white space; `None` if the line was too long.
    pub(super) text: Option<&'a [u8]>,
}

impl Lines {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self {
            begun: BytesMut::new(),
            taken: BytesMut::new(),
            number: 1,
            max_bytes,
            is_too_long: false,
        }
    }

    /// The number of bytes of the line that is not complete.
    pub(super) fn waiting(&self) -> usize {
        self.begun.len()
    }

    /// Takes the first line from `data` if its end is there; else stores `data` for later.
    pub(super) fn next<'s, 'd: 's>(&'s mut self, data: &mut &'d [u8]) -> Option<Line<'s>> {
        let Some(end) = data.iter().position(|byte| *byte == b'\n') else {
            self.begin(data);
            *data = &[];
            return None;
        };
        let (rest, after) = data.split_at(end);
        *data = &after[1..];
        Some(self.finish(rest))
    }

    /// Returns the last line, which may lack a line end. Most bodies end with a line end, so it is
    /// empty.
    pub(super) fn last(&mut self) -> Line<'_> {
        self.finish(&[])
    }

    fn begin(&mut self, data: &[u8]) {
        self.is_too_long |= self.begun.len() + data.len() > self.max_bytes;
        if self.is_too_long {
            self.begun = BytesMut::new();
        } else {
            self.begun.extend_from_slice(data);
        }
    }

    fn finish<'a>(&'a mut self, rest: &'a [u8]) -> Line<'a> {
        // Most lines lie within one part of the body, and are not copied.
        let is_whole = self.begun.is_empty() && !self.is_too_long && rest.len() <= self.max_bytes;
        if !is_whole {
            self.begin(rest);
        }
        let number = self.number;
        self.number += 1;
        let is_too_long = std::mem::take(&mut self.is_too_long);
        let text = match is_whole {
            true => rest,
            false => {
                self.taken = self.begun.split();
                &self.taken
            }
        };
        let text = text
            .strip_prefix(b"\xef\xbb\xbf")
            .filter(|_| number == 1)
            .unwrap_or(text);
        Line {
            number,
            text: (!is_too_long).then(|| text.trim_ascii()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of a body that arrives in these parts.
    fn lines(parts: &[&[u8]], max_bytes: usize) -> Vec<(u64, Option<String>)> {
        let (mut lines, mut found) = (Lines::new(max_bytes), Vec::new());
        let owned = |line: Line<'_>| {
            let text = line
                .text
                .map(|text| String::from_utf8_lossy(text).into_owned());
            (line.number, text)
        };
        for part in parts {
            let mut data = *part;
            while let Some(line) = lines.next(&mut data) {
                found.push(owned(line));
            }
            assert!(lines.waiting() <= max_bytes);
        }
        found.push(owned(lines.last()));
        found
    }

    #[test]
    fn splitting_the_body_does_not_change_its_lines() {
        /// The byte order mark at the start counts too.
        const LONGEST: usize = 10;
        let body = b"\xef\xbb\xbf{\"a\":1}\n\n \xef\xbb\xbfb\r\na long line\nlast";
        let expected = lines(&[body], LONGEST);
        let texts: Vec<_> = expected.iter().map(|(_, text)| text.as_deref()).collect();
        assert_eq!(
            texts,
            [
                Some("{\"a\":1}"),
                Some(""),
                Some("\u{feff}b"),
                None,
                Some("last")
            ]
        );
        for size in 1..body.len() {
            let parts: Vec<_> = body.chunks(size).collect();
            assert_eq!(lines(&parts, LONGEST), expected, "{size}");
        }
        assert_eq!(lines(&[], LONGEST), [(1, Some(String::new()))]);
    }
}
