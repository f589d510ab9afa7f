//! The workers of a queue.

use axum::Json;
use axum::extract::State;

use crate::edge::path::QueueName;
use crate::edge::problem::Problem;
use crate::wire::queues::unread;
use crate::wire::workers::{Node, Nodes};
use crate::work::Shared;

/// List the live workers of a queue
///
/// Sorted by their ids, at most 1,000 of each partition. `nodes` of the queue's counts says how many
/// there are.
#[utoipa::path(
    get,
    path = "/v1/queues/{queue}/nodes",
    tag = "queues",
    responses(
        (status = 200, body = Nodes),
        (status = 404),
    )
)]
pub(super) async fn nodes(
    State(app): State<Shared>,
    name: QueueName,
) -> Result<Json<Nodes>, Problem> {
    let reached = app.client.queue(name.as_str())?.nodes_reached().await?;
    if reached.value.is_empty() && reached.unread.is_empty() {
        app.existing(&name).await?;
    }
    let unread = unread(&reached);
    let nodes = reached.value.into_iter().map(Node::from);
    Ok(Json(Nodes {
        queue: name.as_str().to_owned(),
        nodes: nodes.collect(),
        unread,
    }))
}
