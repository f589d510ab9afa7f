//! The times of death in the address of the page of dead messages.

use crate::dashboard::page::Page;
use crate::dashboard::views::messages::moment;
use crate::edge::problem::Problem;

/// The times of death that a page selects. What dies after the page was made is never among them.
pub(super) struct DeathTimes {
    pub(super) after_ms: Option<u64>,
    pub(super) before_ms: u64,
    /// What was typed for the two times; empty for none.
    pub(super) typed: [String; 2],
    /// The two times in words.
    pub(super) after: Option<String>,
    pub(super) before: String,
}

impl DeathTimes {
    pub(super) fn of(page: &Page, now_ms: u64) -> Result<Self, Problem> {
        let typed = ["from", "until"].map(|name| page.param(name).unwrap_or_default().trim());
        let bound = |name, typed: &str| match typed {
            "" => Ok(None),
            typed => moment(page, name, typed).map(Some),
        };
        let after_ms = bound("from", typed[0])?;
        let before_ms = bound("until", typed[1])?.unwrap_or(now_ms).min(now_ms);
        Ok(Self {
            after_ms,
            before_ms,
            typed: typed.map(str::to_owned),
            after: after_ms.map(|ms| page.clock.absolute(ms)),
            before: page.clock.absolute(before_ms),
        })
    }

    /// Whether the times select all that died until the page was made.
    pub(super) fn is_all(&self) -> bool {
        self.typed.iter().all(String::is_empty)
    }

    /// The times as parameters of a call.
    pub(super) fn bounds(&self) -> String {
        let after = self.after_ms.map(|ms| format!("&after_ms={ms}"));
        format!("before_ms={}{}", self.before_ms, after.unwrap_or_default())
    }

    /// The parameters of this page that keep the times, to be followed by others.
    pub(super) fn params(&self) -> String {
        let mut params = form_urlencoded::Serializer::new(String::new());
        for (name, typed) in ["from", "until"].iter().zip(&self.typed) {
            if !typed.is_empty() {
                params.append_pair(name, typed);
            }
        }
        match params.finish() {
            params if params.is_empty() => params,
            params => params + "&",
        }
    }
}
