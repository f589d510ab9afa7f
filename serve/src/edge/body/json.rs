//! The extractor of JSON bodies, and lists of bounded length.

use std::fmt;
use std::marker::PhantomData;

use axum::extract::{FromRef, FromRequest, Request};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error, SeqAccess, Visitor};

use crate::edge::body::{Bodies, whole};
use crate::edge::problem::{Code, Problem};
use crate::edge::shown::quoted;

/// The most bytes of a JSON body, unless its route sets another limit.
const MAX_BYTES: usize = 1 << 20;

/// A JSON body of at most `MAX` bytes. An empty body counts as an empty object.
#[derive(Debug)]
pub(crate) struct JsonBody<T, const MAX: usize = MAX_BYTES>(pub(crate) T);

impl<T, S, const MAX: usize> FromRequest<S> for JsonBody<T, MAX>
where
    T: DeserializeOwned,
    S: Sync,
    Bodies: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let bodies = Bodies::from_ref(state);
        let whole = whole(&bodies, &parts.headers, body, MAX).await?;
        if whole.bytes.is_empty() {
            return parse(b"{}").map(Self);
        }
        require_json(&parts.headers)?;
        parse(&whole.bytes).map(Self)
    }
}

/// Refuses a body whose content type is not JSON: an HTML form of another site cannot send that
/// type.
pub(crate) fn require_json(headers: &HeaderMap) -> Result<(), Problem> {
    let declared = match media_type(headers) {
        Some(media) if media == "application/json" => return Ok(()),
        Some(media) => quoted(&media),
        None => "no type".to_owned(),
    };
    let detail = format!("the body has {declared}; send Content-Type: application/json");
    Err(Problem::new(Code::UnsupportedMediaType, detail))
}

/// The content type of a body in lower case, without its parameters.
pub(crate) fn media_type(headers: &HeaderMap) -> Option<String> {
    let declared = headers.get(CONTENT_TYPE)?;
    let declared = String::from_utf8_lossy(declared.as_bytes());
    let media = declared.split(';').next().unwrap_or_default();
    Some(media.trim().to_ascii_lowercase())
}

/// Parses a JSON object.
pub(crate) fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Problem> {
    // serde would also accept a list, and take its items for the fields in their order.
    if bytes.trim_ascii_start().starts_with(b"[") {
        let detail = "a list is given: write an object";
        return Err(Problem::new(Code::InvalidInput, detail));
    }
    serde_json::from_slice(bytes).map_err(|error| {
        // A wrong value ends the parsing; the rest of the text is not checked.
        let code = match error.is_data() {
            true => Code::InvalidInput,
            false => code_of(bytes),
        };
        Problem::new(code, dueq_input::unreadable(bytes, &error).to_string())
    })
}

/// The problem code of this text: it is JSON with a wrong value, or it is not JSON.
pub(crate) fn code_of(text: &[u8]) -> Code {
    match dueq_input::is_json(text) {
        true => Code::InvalidInput,
        false => Code::BadRequest,
    }
}

/// A list of at most `MAX` items. The first item beyond that ends the parsing, so that a body with
/// millions of small items uses no more memory than its bytes.
#[derive(Debug)]
pub(crate) struct Bounded<T, const MAX: usize>(pub(crate) Vec<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for Bounded<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Items(PhantomData))
    }
}

struct Items<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Items<T, MAX> {
    type Value = Bounded<T, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of up to {MAX} items")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            if list.len() == MAX {
                return Err(A::Error::custom(format!(
                    "the list is too long: it has up to {MAX} items"
                )));
            }
            list.push(item);
        }
        Ok(Bounded(list))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_parser_stops_at_the_first_item_beyond_max() {
        let read = serde_json::from_str::<Bounded<u8, 2>>;
        assert_eq!(read("[1, 2]").expect("it fits").0, [1, 2]);
        // The rest is not parsed: it is not valid JSON.
        let error = read("[1, 2, 3, NaN").expect_err("it is too long");
        assert!(error.is_data(), "{error}");
        assert!(read("{}").expect_err("no list").is_data());
    }
}
