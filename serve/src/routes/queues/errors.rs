//! Groups the dead messages of a queue by their errors.

use std::collections::HashMap;

use axum::Json;
use axum::extract::State;
use dueq::MessageState;
use dueq::inspect::{MessageCursor, MessageEntry};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::edge::path::{Query, QueueName};
use crate::edge::problem::{Code, Problem};
use crate::wire::overview::{Errors, Example, Group};
use crate::work::Shared;
use crate::work::operations::{died_by_crash, error_line};

/// The most dead messages that are read, the newest first.
const MAX_READ: usize = 1_000;
/// The messages of one call of Redis: it occupies Redis for less than a millisecond.
const PAGE: usize = 200;
/// The most example ids of a group.
const EXAMPLES: usize = 3;

/// The latest time that the call accepts: the end of the year 9999.
const MAX_MS: u64 = 253_402_300_799_999;

/// The times of death.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Died {
    /// Only what died at or after this time, in Unix milliseconds
    #[param(maximum = 253_402_300_799_999_u64)]
    after_ms: Option<u64>,
    /// Only what died at or before this time
    #[param(maximum = 253_402_300_799_999_u64)]
    before_ms: Option<u64>,
}

/// Group the errors of dead messages
///
/// The newest 1,000 dead messages of these times, by the first line of their errors, and crashed ones
/// apart. Without their payloads. `after_ms` and `before_ms` select what an operation with the same
/// fields would requeue or purge.
#[utoipa::path(
    get,
    path = "/v1/queues/{queue}/errors",
    tag = "queues",
    params(Died),
    responses(
        (status = 200, body = Errors),
        (status = 404),
    )
)]
pub(super) async fn errors(
    State(app): State<Shared>,
    name: QueueName,
    Query(died): Query<Died>,
) -> Result<Json<Errors>, Problem> {
    if [died.after_ms, died.before_ms].into_iter().flatten().max() > Some(MAX_MS) {
        let detail = "after_ms, before_ms: a time is after the year 9999";
        return Err(Problem::new(Code::InvalidInput, detail));
    }
    let queue = app.existing(&name).await?;
    let (mut read, mut groups) = (0, Groups::default());
    let mut cursor = died.before_ms.map(MessageCursor::at_ms);
    loop {
        let page = queue
            .list_newest(MessageState::Dead, cursor.as_ref(), PAGE)
            .await?;
        let first_ms = died.after_ms.unwrap_or(0);
        let found = page.messages.iter();
        let found = found.take_while(|message| message.time_ms >= first_ms);
        let count = found.inspect(|message| groups.add(message)).count();
        read += count;
        cursor = page.next.filter(|_| count == page.messages.len());
        if cursor.is_none() || read >= MAX_READ {
            break;
        }
    }
    Ok(Json(Errors {
        queue: name.as_str().to_owned(),
        read,
        more: cursor.is_some(),
        groups: groups.sorted(),
    }))
}

#[derive(Default)]
struct Groups(HashMap<(bool, String), Group>);

impl Groups {
    fn add(&mut self, message: &MessageEntry) {
        let time_ms = message.time_ms;
        let crashed = died_by_crash(message.crashes, &message.error);
        let key = (crashed, error_line(&message.error));
        let group = self.0.entry(key).or_insert_with_key(|(_, line)| Group {
            error: line.clone(),
            crashed,
            count: 0,
            newest_ms: time_ms,
            oldest_ms: time_ms,
            examples: Vec::new(),
        });
        group.count += 1;
        group.newest_ms = group.newest_ms.max(time_ms);
        group.oldest_ms = group.oldest_ms.min(time_ms);
        if group.examples.len() < EXAMPLES {
            group.examples.push(Example::new(&message.id));
        }
    }

    fn sorted(self) -> Vec<Group> {
        let mut groups: Vec<_> = self.0.into_values().collect();
        groups.sort_by(|one, other| {
            let newer = other.newest_ms.cmp(&one.newest_ms);
            let order = other.count.cmp(&one.count).then(newer);
            order.then_with(|| one.error.cmp(&other.error))
        });
        groups
    }
}
