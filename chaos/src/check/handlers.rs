//! Whether a process starts a handler for each granted message, with the granted values, or returns
//! the message.

use std::collections::HashMap;

use super::verdict::Kind;
use crate::history::{Call, ClaimedItem, Verb};

/// The grants of one process without a handler or a settlement.
#[derive(Debug, Default)]
pub(super) struct Granted(HashMap<String, Vec<Delivery>>);

#[derive(Debug)]
struct Delivery {
    token: String,
    answered_us: u64,
    /// Version, due time, attempt.
    content: (u32, u64, u32),
}

/// A killed process may not have started its last grants, if they came so shortly before its last
/// line.
const ABOUT_TO_BEGIN_US: u64 = 30_000_000;

impl Granted {
    pub(super) fn claimed(&mut self, token: &str, answered_us: u64, items: &[ClaimedItem]) {
        for item in items {
            let delivery = Delivery {
                token: token.to_owned(),
                answered_us,
                content: (item.1, item.2, item.3),
            };
            self.0.entry(item.0.clone()).or_default().push(delivery);
        }
    }

    /// A settlement returns the message, or follows a handler's start.
    pub(super) fn invoked(&mut self, call: &Call) {
        let Call::Settle { verb, items } = call else {
            return;
        };
        for item in items.iter().filter(|_| *verb != Verb::Extend) {
            self.remove(&item.0, |delivery| delivery.token == item.1);
        }
    }

    pub(super) fn started(
        &mut self,
        id: &str,
        content: (u32, u64, u32),
    ) -> Result<(), (Kind, String)> {
        if self.remove(id, |delivery| delivery.content == content) {
            return Ok(());
        }
        Err(match self.0.get(id) {
            Some(claims) => {
                let claims: Vec<_> = claims.iter().map(|delivery| delivery.content).collect();
                let what = "version, due, attempt";
                (
                    Kind::ApiLies,
                    format!("a handler of {id} saw {what} {content:?}, claimed were {claims:?}"),
                )
            }
            None => (
                Kind::Unexpected,
                format!("a handler of {id} started without a claim"),
            ),
        })
    }

    /// Describes the remaining grants at the end of a process: all of them if it ended on request.
    pub(super) fn forgotten(&self, ended: bool, last_us: u64) -> Vec<String> {
        let all = self
            .0
            .iter()
            .flat_map(|(id, deliveries)| deliveries.iter().map(move |delivery| (id, delivery)));
        let late =
            all.filter(|(_, delivery)| ended || delivery.answered_us + ABOUT_TO_BEGIN_US < last_us);
        late.map(|(id, Delivery { token, answered_us, content })| {
            format!("{id} was granted by {token} at {answered_us} us (version, due, attempt {content:?}), and neither begun nor given back")
        })
        .collect()
    }

    fn remove(&mut self, id: &str, is: impl Fn(&Delivery) -> bool) -> bool {
        let Some(deliveries) = self.0.get_mut(id) else {
            return false;
        };
        let Some(place) = deliveries.iter().position(is) else {
            return false;
        };
        deliveries.remove(place);
        if deliveries.is_empty() {
            self.0.remove(id);
        }
        true
    }
}
