//! Settles and extends deliveries by their handles.

#[cfg(any(test, feature = "harness"))]
pub(crate) mod checks;
mod outcome;
mod run;
mod settlement;

use axum::Json;
use axum::extract::{FromRequest, Request, State};
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;
use utoipa_axum::router::UtoipaMethodRouter;
use utoipa_axum::routes;

use crate::edge::auth::{Principal, Right};
use crate::edge::body::{Bounded, Whole, parse_json, require_json, whole};
use crate::edge::path::QueueName;
use crate::edge::problem::{Code, Problem};
use crate::routes::messages::{MAX_BYTES, Reader};
use crate::routes::settlements::settlement::Extension;
use crate::routes::settlements::settlement::{Asked, Settlement};
use crate::work::Shared;

pub(crate) use outcome::Settlements;
pub(super) use settlement::ACTIONS;

/// The most items of a request.
const MAX_ITEMS: usize = 1_000;

pub(super) fn routes() -> Vec<UtoipaMethodRouter<Shared>> {
    vec![routes!(settle_deliveries), routes!(extend_deliveries)]
}

/// The complete JSON body of a request, not yet parsed.
struct Items(Whole);

impl FromRequest<Shared> for Items {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Shared) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        require_json(&parts.headers)?;
        let whole = whole(&app.edge.bodies, &parts.headers, body, MAX_BYTES).await?;
        Ok(Self(whole))
    }
}

/// The items of a request, not yet parsed.
type List<'a> = Bounded<&'a RawValue, MAX_ITEMS>;

/// The fields of a request, which has one of the two lists.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Lists<'a> {
    #[serde(borrow)]
    settlements: Option<List<'a>>,
    #[serde(borrow)]
    extensions: Option<List<'a>>,
}

impl Items {
    fn lists(&self) -> Result<Lists<'_>, Problem> {
        parse_json(&self.0.bytes)
    }
}

/// The list that the request must have; refuses a request that has the other one.
fn only<'a>(
    field: &str,
    list: Option<List<'a>>,
    other: Option<List<'a>>,
) -> Result<Vec<&'a RawValue>, Problem> {
    let (Some(Bounded(list)), None) = (list, other) else {
        let detail = format!("write an object with the one field {field}");
        return Err(Problem::new(Code::InvalidInput, detail));
    };
    Ok(list)
}

/// What is settled.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewSettlements)]
#[expect(dead_code, reason = "only its schema is used")]
struct Settle {
    /// A wrong one is refused alone, and the others act.
    #[schema(max_items = 1_000)]
    settlements: Vec<Settlement>,
}

/// What is extended.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewExtensions)]
#[expect(dead_code, reason = "only its schema is used")]
struct Extend {
    /// A wrong one is refused alone, and the others act.
    #[schema(max_items = 1_000)]
    extensions: Vec<Extension>,
}

/// Settle deliveries
///
/// Ends up to 1,000 deliveries of this queue by their handles: done, failed, or not now. A settlement
/// acts only while its lease lasts, so the call can be repeated. Wrong ones are refused, and the others
/// act. If Redis fails, the problem says what became of each. The settlements go on if the caller
/// disconnects.
#[utoipa::path(
    post,
    path = "/v1/queues/{queue}/settlements",
    tag = "consumers",
    request_body = Settle,
    responses(
        (status = 200, description = "What became of each, in their order", body = Settlements),
        (status = 504),
        (status = 507, description = "The queue or the memory of Redis is full, so that nothing can follow a delivery"),
    )
)]
async fn settle_deliveries(
    State(app): State<Shared>,
    caller: Principal,
    name: QueueName,
    items: Items,
) -> Result<Json<Settlements>, Problem> {
    let Lists {
        settlements,
        extensions,
    } = items.lists()?;
    let list = only("settlements", settlements, extensions)?;
    let queue = app.client.queue(name.as_str())?;
    let may_push = caller.has(Right::Produce);
    let mut batch = run::Batch::new(queue);
    let reader = Reader::new();
    for item in list {
        match Asked::read(item.get(), may_push, &app.client, &reader).await {
            // Redis's clock could not be read. No item has been processed yet.
            Err(problem) if problem.code.status().is_server_error() => return Err(problem),
            read => batch.add(read.map(run::Call::Settle)),
        }
    }
    Ok(Json(batch.run(&app.claims.tasks, items.0).await?))
}

/// Extend leases
///
/// Makes the leases of up to 1,000 deliveries of this queue end later: `lease_ms` from now. A lease that
/// already ends later stays as it is, and a lost one stays lost.
#[utoipa::path(
    post,
    path = "/v1/queues/{queue}/extensions",
    tag = "consumers",
    request_body = Extend,
    responses(
        (status = 200, description = "What became of each, in their order", body = Settlements),
        (status = 504),
    )
)]
async fn extend_deliveries(
    State(app): State<Shared>,
    name: QueueName,
    items: Items,
) -> Result<Json<Settlements>, Problem> {
    let Lists {
        settlements,
        extensions,
    } = items.lists()?;
    let list = only("extensions", extensions, settlements)?;
    let mut batch = run::Batch::new(app.client.queue(name.as_str())?);
    for item in list {
        batch.add(Extension::read(item.get()).map(run::Call::Extend));
    }
    Ok(Json(batch.run(&app.claims.tasks, items.0).await?))
}
