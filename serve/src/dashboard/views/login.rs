//! Login with a token, logout, and preferences.

use askama::Template;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::http::header::SET_COOKIE;
use axum::http::request::Parts;
use axum::routing::{get, post};

use crate::dashboard::form::Form;
use crate::dashboard::frame::{Frame, Here, Preferences, THEME_COOKIE, Theme, ZONE_COOKIE};
use crate::dashboard::page::Page;
use crate::dashboard::show::Zone;
use crate::dashboard::views::answer::{Answer, local, render, see};
use crate::dashboard::{page, show};
use crate::edge::auth::session::set_cookie;
use crate::work::Shared;

/// The most bytes of the login form. It is small, because callers without a token may send it.
const MAX_BYTES: usize = 16 << 10;

#[derive(Template)]
#[template(path = "login.html")]
struct LoginPage {
    frame: Frame,
    next: String,
    /// Why the token was refused.
    refused: Option<String>,
}

pub(super) fn routes() -> Router<Shared> {
    Router::new()
        .route("/login", get(show_login).post(log_in))
        .route("/logout", post(log_out))
}

impl LoginPage {
    fn new(parts: &Parts, next: &str) -> Self {
        let preferences = Preferences::of(&parts.headers);
        let base = page::base(parts);
        let address = "/login".to_owned();
        Self {
            frame: Frame::new(
                "Log in".to_owned(),
                Here::Nowhere,
                base,
                address,
                &preferences,
                None,
            ),
            next: local(next).to_owned(),
            refused: None,
        }
    }
}

async fn show_login(request: Request) -> Answer {
    let (parts, _) = request.into_parts();
    let query = parts.uri.query().unwrap_or_default();
    let next = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "next");
    let next = next.map_or_else(|| "/".to_owned(), |(_, value)| value.into_owned());
    render(&LoginPage::new(&parts, &next))
}

async fn log_in(State(app): State<Shared>, parts: Parts, form: Form<MAX_BYTES>) -> Answer {
    let next = form.get("next").unwrap_or("/");
    let token = form.get("token").unwrap_or_default().trim();
    match app.edge.gate.begin_session(token) {
        Ok(session) => {
            let mut response = see(&page::base(&parts), local(next))?;
            if let Some(cookie) = set_cookie(Some(&session), &app.edge.hosts) {
                response.headers_mut().insert(SET_COOKIE, cookie);
            }
            Ok(response)
        }
        Err(problem) => {
            let problem = app.edge.failed_logins.counted(&parts, problem);
            let status = problem.code.status();
            let mut login = LoginPage::new(&parts, next);
            login.refused = Some(show::text(problem.detail()));
            let mut response = render(&login)?;
            *response.status_mut() = status;
            Ok(response)
        }
    }
}

async fn log_out(State(app): State<Shared>, request: Request) -> Answer {
    let (parts, _) = request.into_parts();
    app.edge.gate.end_session(&parts.headers);
    let mut response = see(&page::base(&parts), "/login")?;
    if let Some(cookie) = set_cookie(None, &app.edge.hosts) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    Ok(response)
}

const YEAR_S: u64 = 31_536_000;

pub(super) fn preferences() -> Router<Shared> {
    Router::new().route("/preferences", post(set))
}

async fn set(State(app): State<Shared>, page: Page, form: Form) -> Answer {
    let mut response = see(&page.base, local(form.get("next").unwrap_or("/")))?;
    let secure = if app.edge.hosts.is_https() {
        "; Secure"
    } else {
        ""
    };
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
