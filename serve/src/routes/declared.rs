//! Refuses what an operation does not declare, and so would ignore: parameters, conditions in headers,
//! and other codings of a body. Every route of the document has this layer.

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

use crate::app::Shared;
use crate::problem::{Code, Problem};
use crate::shown::quoted;

/// The headers that say on which condition a call acts.
const CONDITIONS: [HeaderName; 3] = [IF_MATCH, IF_NONE_MATCH, IF_UNMODIFIED_SINCE];

/// What an operation declares.
struct Declared {
    parameters: Vec<String>,
    headers: Vec<String>,
    has_body: bool,
}

/// The routes of one path, each behind the layer.
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
    // A method that the path lacks is refused further inside.
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

/// Refuses a body that is not plain UTF-8.
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
