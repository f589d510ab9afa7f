//! Refuses parameters, conditional headers and content encodings that an operation does not
//! declare, and would otherwise ignore. Every route of the OpenAPI document has this layer.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{
    CONTENT_ENCODING, CONTENT_TYPE, HeaderName, IF_MATCH, IF_NONE_MATCH, IF_UNMODIFIED_SINCE,
};
use axum::http::{HeaderMap, Method};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use utoipa::openapi::RefOr;
use utoipa::openapi::path::{Operation, ParameterIn, PathItem};
use utoipa_axum::router::UtoipaMethodRouter;

use crate::edge::problem::{Code, Problem};
use crate::edge::shown::quoted;
use crate::work::Shared;

/// The headers that make a call conditional.
const CONDITIONS: [HeaderName; 3] = [IF_MATCH, IF_NONE_MATCH, IF_UNMODIFIED_SINCE];

/// The parameters and headers that an operation declares.
struct Declared {
    parameters: Vec<String>,
    headers: Vec<String>,
    has_body: bool,
}

/// The routes of one path, each behind this layer.
pub(super) fn declared(
    (schemas, paths, methods): UtoipaMethodRouter<Shared>,
) -> UtoipaMethodRouter<Shared> {
    let operations = paths.paths.values().flat_map(operations);
    let all: HashMap<_, _> = operations
        .map(|(method, operation)| (method, Declared::of(operation)))
        .collect();
    let methods = methods.route_layer(from_fn_with_state(Arc::new(all), check));
    (schemas, paths, methods)
}

fn operations(item: &PathItem) -> impl Iterator<Item = (Method, &Operation)> {
    let all = [
        (Method::GET, &item.get),
        (Method::PUT, &item.put),
        (Method::POST, &item.post),
        (Method::DELETE, &item.delete),
        (Method::PATCH, &item.patch),
    ];
    let all = all.into_iter();
    all.filter_map(|(method, operation)| Some((method, operation.as_ref()?)))
}

async fn check(
    State(all): State<Arc<HashMap<Method, Declared>>>,
    request: Request,
    next: Next,
) -> Response {
    let method = match request.method() {
        &Method::HEAD => &Method::GET,
        method => method,
    };
    // A method that the path does not have is refused by the router inside.
    let checked = match all.get(method) {
        Some(declared) => declared.check(&request),
        None => Ok(()),
    };
    match checked {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

impl Declared {
    fn of(operation: &Operation) -> Self {
        let all = operation.parameters.iter().flatten();
        let all = all.filter_map(|one| match one {
            RefOr::T(one) => Some(one),
            RefOr::Ref(_) => None,
        });
        let named = |place: ParameterIn, name: fn(&str) -> String| {
            let of_place = all.clone().filter(|one| one.parameter_in == place);
            of_place.map(|one| name(&one.name)).collect()
        };
        Self {
            parameters: named(ParameterIn::Query, str::to_owned),
            headers: named(ParameterIn::Header, str::to_ascii_lowercase),
            has_body: operation.request_body.is_some(),
        }
    }

    fn check(&self, request: &Request) -> Result<(), Problem> {
        let invalid = |detail| Err(Problem::new(Code::InvalidInput, detail));
        let query = request.uri().query().unwrap_or_default();
        for (name, _) in form_urlencoded::parse(query.as_bytes()) {
            if !self.parameters.iter().any(|known| *known == name) {
                let known = match &*self.parameters.join(", ") {
                    "" => "this call has none; a ? in a name is %3F".to_owned(),
                    names => format!("this call has {names}"),
                };
                return invalid(format!("there is no parameter {}: {known}", quoted(&name)));
            }
        }
        let headers = request.headers();
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        for name in CONDITIONS.iter().filter(|_| !is_read) {
            let is_known = self.headers.iter().any(|known| known == name.as_str());
            if headers.contains_key(name) && !is_known {
                return invalid(format!(
                    "{name}: this call has no such condition; leave it out"
                ));
            }
        }
        match self.has_body {
            true => check_coding(headers),
            false => Ok(()),
        }
    }
}

/// Refuses a body that is compressed or not in UTF-8.
fn check_coding(headers: &HeaderMap) -> Result<(), Problem> {
    let refused = |detail| Err(Problem::new(Code::UnsupportedMediaType, detail));
    for value in headers.get_all(CONTENT_ENCODING) {
        if !value.as_bytes().eq_ignore_ascii_case(b"identity") {
            let coding = quoted(&String::from_utf8_lossy(value.as_bytes()));
            return refused(format!(
                "the body has Content-Encoding {coding}; send it without one"
            ));
        }
    }
    let Some(declared) = headers.get(CONTENT_TYPE) else {
        return Ok(());
    };
    let declared = String::from_utf8_lossy(declared.as_bytes());
    for parameter in declared.split(';').skip(1) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let value = value.trim().trim_matches('"');
        let is_charset = name.trim().eq_ignore_ascii_case("charset");
        if is_charset && !value.eq_ignore_ascii_case("utf-8") {
            let charset = quoted(value);
            return refused(format!("the body has the charset {charset}; send UTF-8"));
        }
    }
    Ok(())
}

/// The entity tags of a conditional header.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Tags {
    /// `*`: any entity tag fits.
    Any,
    /// The tags; the flag says whether a tag is strong.
    Of(Vec<(String, bool)>),
}

impl Tags {
    /// Reads the tags of this header; `None` without the header.
    pub(super) fn read(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Self>, Problem> {
        let wrong = |tag: &str| {
            let detail = format!("{name}: {} is no ETag: write \"...\" or *", quoted(tag));
            Problem::new(Code::InvalidInput, detail)
        };
        let mut tags = Vec::new();
        for value in headers.get_all(name) {
            let text = String::from_utf8_lossy(value.as_bytes());
            for tag in text.split(',').map(str::trim) {
                let (opaque, is_strong) = match tag.strip_prefix("W/") {
                    Some(weak) => (weak, false),
                    None => (tag, true),
                };
                let inner = opaque.strip_prefix('"');
                let inner = inner.and_then(|tag| tag.strip_suffix('"'));
                match inner.filter(|inner| inner.is_ascii()) {
                    Some(inner) => tags.push((inner.to_owned(), is_strong)),
                    None if text.trim() == "*" && tags.is_empty() => return Ok(Some(Self::Any)),
                    None => return Err(wrong(tag)),
                }
            }
        }
        Ok(headers.contains_key(name).then_some(Self::Of(tags)))
    }

    /// Whether this strong tag is among the tags. `If-Match` compares strongly: a weak tag equals
    /// no other.
    pub(super) fn has(&self, tag: &str, is_weakly: bool) -> bool {
        match self {
            Self::Any => true,
            Self::Of(tags) => tags
                .iter()
                .any(|(known, is_strong)| known == tag && (*is_strong || is_weakly)),
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::header::IF_MATCH;

    use super::*;

    #[test]
    fn conditional_header_is_a_star_or_a_list_of_tags() {
        let read = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(IF_MATCH, value.parse().expect("a value"));
            }
            Tags::read(&headers, &IF_MATCH).map_err(|problem| problem.code)
        };
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&["*"]), Ok(Some(Tags::Any)));
        for values in [&["\"a\" , W/\"b\""][..], &["\"a\"", "W/\"b\""]] {
            let tags = read(values).expect("tags").expect("a header");
            assert!(tags.has("a", false) && tags.has("b", true));
            assert!(!tags.has("b", false) && !tags.has("c", true));
        }
        for wrong in [
            "", "a", "\"", "\"a", "\"a\",", "\"a\", *", "*, \"a\"", "W/a",
        ] {
            assert_eq!(read(&[wrong]), Err(Code::InvalidInput), "{wrong}");
        }
    }
}
