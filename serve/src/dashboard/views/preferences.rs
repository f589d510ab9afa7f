//! Zone and theme: a form in the frame, kept in cookies.

use axum::Router;
use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::SET_COOKIE;
use axum::routing::post;

use crate::app::Shared;
use crate::dashboard::form::Form;
use crate::dashboard::frame::{THEME_COOKIE, Theme, ZONE_COOKIE};
use crate::dashboard::page::Page;
use crate::dashboard::show::Zone;
use crate::dashboard::views::{Answer, local, see};

const YEAR_S: u64 = 31_536_000;

pub(super) fn routes() -> Router<Shared> {
    Router::new().route("/preferences", post(set))
}

async fn set(State(app): State<Shared>, page: Page, form: Form) -> Answer {
    let mut response = see(&page.base, local(form.get("next").unwrap_or("/")))?;
    let secure = if app.hosts.is_https() { "; Secure" } else { "" };
    let base = &page.base;
    let mut keep = |name: &str, value: &str| {
        let cookie =
            format!("{name}={value}; Path={base}/; Max-Age={YEAR_S}; SameSite=Strict{secure}");
        if let Ok(cookie) = HeaderValue::try_from(cookie) {
            response.headers_mut().append(SET_COOKIE, cookie);
        }
    };
    if let Some(name) = form.filled("zone") {
        keep(ZONE_COOKIE, Zone::named(name.trim())?.name());
    }
    if let Some(theme) = form.get("theme").and_then(Theme::named) {
        keep(THEME_COOKIE, theme.name());
    }
    Ok(response)
}
