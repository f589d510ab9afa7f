//! Searches all queues for a message id.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use dueq::{Client, StoredMessage};
use serde::Deserialize;
use tokio::task::JoinSet;
use utoipa::IntoParams;
use utoipa_axum::router::UtoipaMethodRouter;
use utoipa_axum::routes;

use crate::edge::auth::Principal;
use crate::edge::path::{Query, read_id};
use crate::edge::problem::{Code, Problem};
use crate::wire::about::{Failed, Hit, SearchResult};
use crate::work::Shared;

/// The most queues that a search asks.
const MAX_QUEUES: usize = 1_000;
/// The most calls of one search that run concurrently.
const AT_ONCE: usize = 16;
pub(super) fn routes() -> Vec<UtoipaMethodRouter<Shared>> {
    vec![routes!(search)]
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// The id, or `~` and its base64url
    #[param(
        format = "id-segment",
        pattern = "^[^\\u0000-\\u001f\\u007f]+$",
        min_length = 1
    )]
    id: String,
}

/// Find a message by its id
///
/// In the queues that the caller may use, 1,000 at most. Finds messages
/// that are scheduled, ready, leased or dead, and not those that have ended. Each caller has one search
/// at once, and all together four: others wait for 5 s at most.
#[utoipa::path(
    get,
    path = "/v1/search",
    tag = "messages",
    params(Wanted),
    responses((status = 200, body = SearchResult)),
)]
async fn search(
    State(app): State<Shared>,
    principal: Principal,
    Query(wanted): Query<Wanted>,
) -> Result<Json<SearchResult>, Problem> {
    let id: Arc<[u8]> = read_id(&wanted.id)?.into();
    let _running = app.searches.begin(principal.name()).await?;
    let snapshot = app.poller.looked().await;
    snapshot.known_age_ms()?;
    let allowed = snapshot.after(None).map(|(name, _)| Arc::clone(name));
    let mut allowed = allowed.filter(|name| principal.may_use(name));
    let mut found = SearchResult {
        found: Vec::new(),
        asked: 0,
        failed: Vec::new(),
        not_asked: Vec::new(),
        complete: false,
        names_age_ms: snapshot.names_age_ms(),
    };
    let names: Vec<_> = allowed.by_ref().take(MAX_QUEUES).collect();
    found.asked = names.len();
    let mut names = app.client.may_hold(&id, names).await.into_iter();
    let mut calls = JoinSet::new();
    loop {
        while calls.len() < AT_ONCE
            && let Some(name) = names.next()
        {
            calls.spawn(look_up(app.client.clone(), name, Arc::clone(&id)));
        }
        let Some(ended) = calls.join_next().await else {
            break;
        };
        let Ok((name, result)) = ended else {
            return Err(Problem::new(Code::Internal, "a call panicked"));
        };
        match result {
            Ok(Some(stored)) => found.found.push(Hit::new(&name, stored)),
            Ok(None) => {}
            // Redis is unreachable: the other calls would fail too.
            Err(error) if error.is_retryable() => return Err(error.into()),
            Err(error) => found.failed.push(Failed {
                queue: name.to_string(),
                error: error.to_string(),
            }),
        }
    }
    found.not_asked = allowed.map(|name| name.to_string()).collect();
    found.complete = snapshot.is_whole() && found.failed.is_empty() && found.not_asked.is_empty();
    found
        .found
        .sort_by(|one, other| one.queue.cmp(&other.queue));
    found
        .failed
        .sort_by(|one, other| one.queue.cmp(&other.queue));
    Ok(Json(found))
}

async fn look_up(
    client: Client,
    name: Arc<str>,
    id: Arc<[u8]>,
) -> (Arc<str>, Result<Option<StoredMessage>, dueq::Error>) {
    let result = match client.queue(&name) {
        Ok(queue) => queue.get_up_to(&*id, 0).await,
        Err(error) => Err(error),
    };
    (name, result)
}

#[cfg(any(test, feature = "harness"))]
pub(crate) fn check(uri: &axum::http::Uri) -> Result<(), Problem> {
    let Query(wanted) = Query::<Wanted>::read(uri)?;
    let id = read_id(&wanted.id)?;
    assert!((1..=200).contains(&id.len()));
    Ok(())
}
