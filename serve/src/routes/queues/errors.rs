//! Groups the dead messages of a queue by their errors.

use std::collections::HashMap;

use axum::Json;
use axum::extract::State;
use dueq::MessageState;
use dueq::inspect::MessageEntry;

use crate::edge::path::QueueName;
use crate::edge::problem::Problem;
use crate::wire::overview::{Errors, Example, Group};
use crate::work::Shared;
use crate::work::operations::{died_by_crash, error_line};

/// The most dead messages that are read, the newest first.
const MAX_READ: usize = 1_000;
/// The messages of one call of Redis: it occupies Redis for less than a millisecond.
const PAGE: usize = 200;
/// The most example ids of a group.
const EXAMPLES: usize = 3;

/// Group the errors of dead messages
///
/// The newest 1,000 dead messages, by the first line of their errors, and crashed ones apart. Without
/// their payloads.
#[utoipa::path(
    get,
    path = "/v1/queues/{queue}/errors",
    tag = "queues",
    responses(
        (status = 200, body = Errors),
        (status = 404),
    )
)]
pub(super) async fn errors(
    State(app): State<Shared>,
    name: QueueName,
) -> Result<Json<Errors>, Problem> {
    let queue = app.existing(&name).await?;
    let (mut read, mut cursor, mut groups) = (0, None, Groups::default());
    loop {
        let page = queue
            .list_newest(MessageState::Dead, cursor.as_ref(), PAGE)
            .await?;
        read += page.messages.len();
        for message in &page.messages {
            groups.add(message);
        }
        cursor = page.next;
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
