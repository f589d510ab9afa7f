//! Reads the parameters of the list of messages.

use dueq_input::Wording;
use form_urlencoded::Serializer;
use jiff::Timestamp;

use crate::dashboard::page::Page;
use crate::edge::problem::{Code, Problem};
use crate::edge::shown::{self, quoted};

const STATES: [&str; 4] = ["scheduled", "ready", "leased", "dead"];

/// The most bytes of a payload that are read for its first line.
const PREVIEW: usize = 200;

/// The parameters of the page. A bound is kept as its typed text and in Unix milliseconds.
pub(super) struct Asked {
    pub(super) state: &'static str,
    pub(super) is_newest: bool,
    /// Of leased messages: those first that run longest.
    pub(super) is_by_start: bool,
    pub(super) from: Option<(String, u64)>,
    pub(super) before: Option<(String, u64)>,
    /// The filter as typed: part of the error, least failures, least crashes. Empty for none.
    pub(super) filter: [String; 3],
    /// Whether the first line of each payload is shown.
    pub(super) with_payload: bool,
    pub(super) cursor: Option<String>,
}

/// The parameters of the filter, which are those of `/v1`.
pub(super) const FILTER: [&str; 3] = ["error_text", "min_failures", "min_crashes"];

impl Asked {
    pub(super) fn of(page: &Page) -> Result<Self, Problem> {
        let state = page.param("state").unwrap_or("scheduled");
        let known = STATES.into_iter().find(|known| *known == state);
        let is_newest = match page.param("order") {
            None | Some("oldest" | "start" | "") => false,
            Some("newest") => true,
            Some(other) => {
                return Err(invalid(format!(
                    "order: {}; it is oldest, newest or, of leased messages, start",
                    quoted(other)
                )));
            }
        };
        let bound = |name: &str| -> Result<_, Problem> {
            let typed = page.param(name).map(str::trim);
            let Some(typed) = typed.filter(|typed| !typed.is_empty()) else {
                return Ok(None);
            };
            Ok(Some((typed.to_owned(), moment(page, name, typed)?)))
        };
        Ok(Self {
            state: known.ok_or_else(|| {
                invalid(format!(
                    "state: {}; it is one of {}",
                    quoted(state),
                    STATES.join(", ")
                ))
            })?,
            is_newest,
            is_by_start: state == "leased" && page.param("order") == Some("start"),
            from: bound("from")?,
            before: bound("before")?,
            filter: filter(page)?,
            with_payload: page.param("payload") == Some("true"),
            cursor: page.param("cursor").map(str::to_owned),
        })
    }

    /// The typed text of a bound, for its form field; empty without a bound.
    pub(super) fn typed(&self, bound: &Option<(String, u64)>) -> String {
        bound
            .as_ref()
            .map(|(typed, _)| typed.clone())
            .unwrap_or_default()
    }

    fn order(&self) -> &'static str {
        if self.is_newest { "newest" } else { "oldest" }
    }

    /// The parameters for the list call of `/v1`.
    pub(super) fn of_list(&self, limit: usize) -> String {
        let mut params = Serializer::new(String::new());
        params.append_pair("state", self.state);
        params.append_pair("order", self.order());
        params.append_pair("limit", &limit.to_string());
        match (&self.cursor, &self.from) {
            (Some(cursor), _) => {
                params.append_pair("cursor", cursor);
            }
            (None, Some((_, ms))) if self.least_ms().is_none() => {
                params.append_pair("from", &shown::moment(*ms));
            }
            _ => {}
        }
        if let Some((_, ms)) = &self.before {
            params.append_pair("before", &shown::moment(*ms));
        }
        self.add_filter(&mut params);
        if self.with_payload && !self.is_by_start {
            params.append_pair("payload_bytes", &PREVIEW.to_string());
        }
        params.finish()
    }

    fn add_filter(&self, params: &mut Serializer<'_, String>) {
        for (name, typed) in FILTER.iter().zip(&self.filter) {
            if !typed.is_empty() {
                params.append_pair(name, typed);
            }
        }
    }

    pub(super) fn has_filter(&self) -> bool {
        self.filter.iter().any(|typed| !typed.is_empty())
    }

    /// The lower bound of all pages, if the list has the newest message first and both bounds are
    /// given. The list then cannot begin at `from`.
    pub(super) fn least_ms(&self) -> Option<u64> {
        let (_, ms) = self.from.as_ref()?;
        (self.is_newest && self.before.is_some()).then_some(*ms)
    }

    /// The parameters of this page, with this cursor if there is one.
    pub(super) fn address(&self, cursor: Option<&str>) -> String {
        self.with(self.state, cursor)
    }

    /// The parameters of the list of messages in another state.
    pub(super) fn in_state(&self, state: &str) -> String {
        if state == self.state {
            return self.with(state, None);
        }
        let mut params = Serializer::new(format!("state={state}"));
        self.add_filter(&mut params);
        params.finish()
    }

    fn with(&self, state: &str, cursor: Option<&str>) -> String {
        let mut params = Serializer::new(String::new());
        params.append_pair("state", state);
        let order = if self.is_by_start {
            "start"
        } else {
            self.order()
        };
        params.append_pair("order", order);
        for (name, bound) in [("from", &self.from), ("before", &self.before)] {
            if let Some((typed, _)) = bound {
                params.append_pair(name, typed);
            }
        }
        self.add_filter(&mut params);
        if self.with_payload {
            params.append_pair("payload", "true");
        }
        if let Some(cursor) = cursor {
            params.append_pair("cursor", cursor);
        }
        params.finish()
    }
}

/// The typed filter. A count is a whole number.
fn filter(page: &Page) -> Result<[String; 3], Problem> {
    let typed = FILTER.map(|name| page.param(name).unwrap_or_default().trim().to_owned());
    for (name, typed) in FILTER.iter().zip(&typed).skip(1) {
        if !typed.is_empty() && typed.parse::<u32>().is_err() {
            let detail = format!("{name}: {} is no whole number", quoted(typed));
            return Err(invalid(detail));
        }
    }
    Ok(typed)
}

/// Parses a typed time: as `/v1` spells times, as a clock in the page's zone shows them, or
/// relative, such as `10m ago`.
pub(in crate::dashboard::views) fn moment(
    page: &Page,
    field: &str,
    typed: &str,
) -> Result<u64, Problem> {
    let zone = page.clock.zone().rules();
    let moment = dueq_input::moment(typed.trim(), Some(zone), Timestamp::now(), Wording::Fields);
    let moment = moment.map_err(|error| invalid(format!("{field}: {error}")))?;
    let since = moment.duration_since(std::time::UNIX_EPOCH);
    Ok(u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX))
}

fn invalid(detail: String) -> Problem {
    Problem::new(Code::InvalidInput, detail)
}
