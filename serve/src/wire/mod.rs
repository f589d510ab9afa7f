//! The JSON types of `/v1`, for the routes that send them and the dashboard pages that read them.

pub(crate) mod about;
pub(crate) mod again;
pub(crate) mod causes;
pub(crate) mod life;
pub(crate) mod messages;
pub(crate) mod operations;
pub(crate) mod overview;
pub(crate) mod queues;
pub(crate) mod schedules;
pub(crate) mod workers;

use axum::Json;
use axum::http::HeaderValue;
use axum::http::header::LINK;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// A page as JSON. The header `Link` also has the address of the next page.
pub(crate) fn paged(next: Option<&str>, page: impl Serialize) -> Response {
    let link = next.and_then(|next| HeaderValue::from_str(&format!("<{next}>; rel=\"next\"")).ok());
    (link.map(|link| [(LINK, link)]), Json(page)).into_response()
}
