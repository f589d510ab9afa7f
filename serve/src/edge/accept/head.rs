//! Parses the head of a request before hyper does. hyper accepts some ambiguous heads, and answers
//! a malformed one without a problem document.

use std::mem::MaybeUninit;

use axum::http::Uri;
use httparse::{Header, Request, Status};

use crate::edge::problem::{Code, Problem};

/// The most bytes of a request head.
pub(super) const MAX_HEAD_BYTES: usize = 16 << 10;
/// The most headers of a request.
pub(super) const MAX_HEADERS: usize = 100;

/// A head that hyper may get.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// The length of the head, with its empty line.
    pub(super) bytes: usize,
    pub(super) body: Framing,
}

/// How the end of the body is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// The body has this number of bytes (`Content-Length`).
    Length(u64),
    /// The body ends with its last chunk.
    Chunks,
}

/// Why a head is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wrong {
    TooLarge,
    /// The bytes are not HTTP, or two servers could read the head differently.
    Broken(&'static str),
}

impl Wrong {
    pub(super) fn problem(self) -> Problem {
        match self {
            Self::TooLarge => {
                let detail = format!(
                    "the request line and the headers have at most {MAX_HEAD_BYTES} bytes and {MAX_HEADERS} headers"
                );
                Problem::new(Code::HeadTooLarge, detail)
            }
            Self::Broken(reason) => {
                let detail = format!("the head of the request cannot be read: {reason}");
                Problem::new(Code::BadRequest, detail)
            }
        }
    }
}

/// Parses the head at the start of `bytes`; `None` if its end has not arrived. The first `seen`
/// bytes were there in an earlier call.
pub(super) fn read(bytes: &[u8], seen: usize) -> Result<Option<Head>, Wrong> {
    // A head that arrives byte by byte is parsed only twice: with its first bytes and once it is
    // complete.
    if seen > 0 && !has_end(&bytes[seen.saturating_sub(3)..]) {
        return match bytes.len() > MAX_HEAD_BYTES {
            true => Err(Wrong::TooLarge),
            false => Ok(None),
        };
    }
    let mut headers = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut request = Request::new(&mut []);
    let length = match request.parse_with_uninit_headers(bytes, &mut headers) {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) if bytes.len() <= MAX_HEAD_BYTES => return Ok(None),
        Ok(Status::Partial) | Err(httparse::Error::TooManyHeaders) => return Err(Wrong::TooLarge),
        Err(error) => return Err(Wrong::Broken(reason(error))),
    };
    if length > MAX_HEAD_BYTES {
        return Err(Wrong::TooLarge);
    }
    let mut lines = bytes[..length].split(|byte| *byte == b'\n');
    let _after_the_last_line = lines.next_back();
    if !lines.all(|line| line.ends_with(b"\r")) {
        return Err(Wrong::Broken("a line does not end with CR LF"));
    }
    let target = request.path.unwrap_or_default();
    if Uri::try_from(target).is_err() {
        return Err(Wrong::Broken("the target of the request line is no URL"));
    }
    let body = framing(request.headers, request.version)?;
    Ok(Some(Head {
        bytes: length,
        body,
    }))
}

/// Whether the bytes contain the end of a head.
fn has_end(bytes: &[u8]) -> bool {
    bytes.windows(2).any(|two| two == b"\n\n") || bytes.windows(3).any(|three| three == b"\n\r\n")
}

/// How the body ends. Refuses a head that a proxy in front could read differently: the proxy could
/// take a part of the body for the next request, or a request for a part of the body.
fn framing(headers: &[Header<'_>], version: Option<u8>) -> Result<Framing, Wrong> {
    let broken = |reason| Err(Wrong::Broken(reason));
    let (mut length, mut has_chunks) = (None, false);
    for header in headers {
        if header.name.eq_ignore_ascii_case("content-length") {
            if length.is_some() {
                return broken("Content-Length is there twice");
            }
            let text = str::from_utf8(header.value).unwrap_or_default();
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let number = text
                .parse::<i64>()
                .ok()
                .and_then(|number| number.try_into().ok());
            match number.filter(|_| is_number) {
                Some(number) => length = Some(number),
                None => return broken("Content-Length is no number of bytes"),
            }
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            if has_chunks {
                return broken("Transfer-Encoding is there twice");
            }
            if !header.value.eq_ignore_ascii_case(b"chunked") {
                return broken("Transfer-Encoding is not chunked");
            }
            has_chunks = true;
        }
    }
    match (length, has_chunks) {
        (Some(_), true) => broken("it has both Content-Length and Transfer-Encoding"),
        (None, true) if version != Some(1) => broken("HTTP/1.0 has no Transfer-Encoding"),
        (None, true) => Ok(Framing::Chunks),
        (length, false) => Ok(Framing::Length(length.unwrap_or(0))),
    }
}

fn reason(error: httparse::Error) -> &'static str {
    match error {
        httparse::Error::HeaderName => "a header has a wrong name",
        httparse::Error::HeaderValue => "a header has a wrong value",
        httparse::Error::NewLine => "a line does not end with CR LF",
        httparse::Error::Version => "the version is not HTTP/1.1 or HTTP/1.0",
        _ => "it is no HTTP",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(lines: &str) -> String {
        format!("POST / HTTP/1.1\r\n{lines}\r\n")
    }

    #[test]
    fn framing_follows_length_and_chunk_headers() {
        for (lines, body) in [
            ("Host: a\r\n", Framing::Length(0)),
            ("Content-Length: 5\r\n", Framing::Length(5)),
            ("content-length:   007 \r\n", Framing::Length(7)),
            ("Transfer-Encoding: Chunked\r\n", Framing::Chunks),
        ] {
            let text = head(lines);
            let bytes = text.len();
            let expected = Ok(Some(Head { bytes, body }));
            assert_eq!(read(text.as_bytes(), 0), expected, "{lines:?}");
            let more = format!("{text}GET / HTTP/1.1\r\n");
            assert_eq!(read(more.as_bytes(), 0), expected, "{lines:?}");
        }
    }

    #[test]
    fn ambiguous_request_heads_are_refused() {
        let (length, chunks) = ("Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n");
        for lines in [
            format!("{length}{chunks}"),
            format!("{chunks}{length}"),
            format!("{length}{length}"),
            format!("{length}Content-Length: 6\r\n"),
            format!("{chunks}{chunks}"),
            "Content-Length: 5, 5\r\n".to_owned(),
            "Content-Length:\r\n".to_owned(),
            "Content-Length: +5\r\n".to_owned(),
            "Content-Length: -5\r\n".to_owned(),
            "Content-Length: 5\u{e9}\r\n".to_owned(),
            "Content-Length: 9223372036854775808\r\n".to_owned(),
            "Transfer-Encoding: gzip, chunked\r\n".to_owned(),
            "Transfer-Encoding: chunked, identity\r\n".to_owned(),
            "Transfer-Encoding: identity\r\n".to_owned(),
            "Transfer-Encoding:\r\n".to_owned(),
            "Transfer-Encoding : chunked\r\n".to_owned(),
            "X: y\r\n folded\r\n".to_owned(),
            " X: y\r\n".to_owned(),
            "X: y\nZ: z\r\n".to_owned(),
            "X: y\rZ: z\r\n".to_owned(),
            "X: a\0b\r\n".to_owned(),
            ": y\r\n".to_owned(),
            "X\r\n".to_owned(),
        ] {
            let text = head(&lines);
            let read = read(text.as_bytes(), 0);
            assert!(matches!(read, Err(Wrong::Broken(_))), "{lines:?}: {read:?}");
        }
        for text in [
            "\u{16}\u{3}\u{1}\u{2}\0\u{1}",
            "GET\r\n\r\n",
            "GET / HTTP/2.0\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\n",
            "GET  / HTTP/1.1\r\n\r\n",
            "GET / x HTTP/1.1\r\n\r\n",
            "GET /<> HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\n\n",
            "\nGET / HTTP/1.1\r\n\r\n",
            "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
        ] {
            let read = read(text.as_bytes(), 0);
            assert!(matches!(read, Err(Wrong::Broken(_))), "{text:?}: {read:?}");
        }
    }

    #[test]
    fn head_in_any_parts_is_parsed_alike() {
        for text in [
            "\r\nPUT /a?b=c HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n",
            "PUT / HTTP/1.1\r\nX: y\nZ: z\n\n",
            "PUT / HTTP/1.1\r\nTransfer-Encoding: x\n\r\n",
        ] {
            let whole = read(text.as_bytes(), 0);
            assert_ne!(whole, Ok(None));
            for size in 1..text.len() {
                let (mut length, mut seen) = (size, 0);
                let in_parts = loop {
                    match read(&text.as_bytes()[..length], seen) {
                        Ok(None) => (seen, length) = (length, (length + size).min(text.len())),
                        read => break read,
                    }
                };
                assert_eq!(in_parts, whole, "{text:?} in parts of {size}");
            }
        }
    }

    #[test]
    fn head_beyond_a_limit_is_refused() {
        let most = "x".repeat(MAX_HEAD_BYTES);
        let many = "X: y\r\n".repeat(MAX_HEADERS + 1);
        for text in [
            format!("GET /{most}"),
            format!("GET /{most} HTTP/1.1\r\n\r\n"),
            head(&format!("X: {most}\r\n")),
            head(&many),
        ] {
            assert_eq!(read(text.as_bytes(), 0), Err(Wrong::TooLarge));
            let seen = text.len() - 1;
            assert_eq!(read(text.as_bytes(), seen), Err(Wrong::TooLarge), "{seen}");
        }
        let all = head(&"X: y\r\n".repeat(MAX_HEADERS));
        assert!(matches!(read(all.as_bytes(), 0), Ok(Some(_))));
    }
}
