//! Claims: a call takes due messages under a lease, or waits for them.

mod answer;
#[cfg(any(test, feature = "harness"))]
pub(crate) mod checks;

use std::pin::pin;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use dueq::claims::{LeaseToken, Puller};
use dueq::{Delivery, Error, Queue};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;
use utoipa_axum::router::UtoipaMethodRouter;
use utoipa_axum::routes;

use crate::edge::accept::Outbox;
use crate::edge::auth::{Principal, Right, check_right};
use crate::edge::body::JsonBody;
use crate::edge::path::QueueName;
use crate::edge::problem::{Code, Problem};
use crate::routes::claims::answer::Grant;
use crate::work::claims::{Attention, Permit, Place, Unreceived, lease_token};
use crate::work::{App, Shared};

/// The longest wait: proxies give up after 60 s, and the server itself needs some time.
const MAX_WAIT_MS: u64 = 50_000;
const DAY_MS: u64 = 86_400_000;
/// The most characters of a `claim_id`.
const MAX_ID_CHARS: usize = 200;

pub(super) fn routes() -> Vec<UtoipaMethodRouter<Shared>> {
    vec![routes!(claim_messages)]
}

/// What is claimed.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Claim {
    /// How many messages at most; 1 without it. An answer has up to 4 MiB of payloads, or one message.
    #[serde(default = "one")]
    #[schema(minimum = 1, maximum = 256)]
    max: u64,
    /// How long they are leased: up to a day; 30 s without it.
    #[serde(default = "half_a_minute")]
    #[schema(minimum = 1, maximum = 86_400_000)]
    lease_ms: u64,
    /// How long the call waits until a message is due. Without it the call does not wait.
    #[serde(default)]
    #[schema(maximum = 50_000)]
    wait_ms: u64,
    /// Makes the call repeatable: as long as the lease lasts, the same call of the same caller answers
    /// the same deliveries. Choose a new one after each answer.
    #[schema(min_length = 1, max_length = 200, pattern = "^[!-~]+$")]
    claim_id: Option<String>,
}

fn one() -> u64 {
    1
}

fn half_a_minute() -> u64 {
    30_000
}

/// A claim whose values are in their ranges.
#[derive(Debug, Clone, Copy)]
struct Request {
    max: usize,
    lease: Duration,
    wait: Duration,
    /// The fencing token, derived from the `claim_id`.
    token: Option<LeaseToken>,
}

impl Claim {
    /// Refuses values that are out of their ranges.
    fn check_ranges(&self) -> Result<(), Problem> {
        let wrong = |detail: String| Err(Problem::new(Code::InvalidInput, detail));
        let &Self {
            max,
            lease_ms,
            wait_ms,
            ref claim_id,
        } = self;
        let most = Puller::MAX as u64;
        if !(1..=most).contains(&max) {
            return wrong(format!(
                "max: {max} is out of range; claim 1 to {most} messages"
            ));
        }
        if !(1..=DAY_MS).contains(&lease_ms) {
            return wrong(format!(
                "lease_ms: {lease_ms} is out of range; a lease has 1 to {DAY_MS} ms"
            ));
        }
        if wait_ms > MAX_WAIT_MS {
            return wrong(format!(
                "wait_ms: {wait_ms} is out of range; a claim waits up to {MAX_WAIT_MS} ms"
            ));
        }
        if let Some(id) = claim_id
            && (id.is_empty()
                || id.len() > MAX_ID_CHARS
                || !id.bytes().all(|b| b.is_ascii_graphic()))
        {
            return wrong(format!(
                "claim_id: write 1 to {MAX_ID_CHARS} characters from ! to ~"
            ));
        }
        Ok(())
    }

    fn check(self, app: &App, caller: &Principal, queue: &str) -> Result<Request, Problem> {
        self.check_ranges()?;
        let token = self
            .claim_id
            .map(|id| lease_token(&app.edge.gate.signing_key(), caller, queue, &id));
        Ok(Request {
            max: usize::try_from(self.max).unwrap_or(Puller::MAX),
            lease: Duration::from_millis(self.lease_ms),
            wait: Duration::from_millis(self.wait_ms),
            token,
        })
    }
}

/// Claim messages
///
/// Takes due messages under a lease, and waits up to `wait_ms` for the first one. Settle each by its
/// handle before the lease ends, or extend it: otherwise the message is delivered again, and a crash
/// is counted. With `claim_id` the call can be repeated after its answer was lost. Without it,
/// messages whose answer could not be written are released, and nothing is counted.
#[utoipa::path(
    post,
    path = "/v1/queues/{queue}/claims",
    tag = "consumers",
    request_body = Option<Claim>,
    responses(
        (status = 200, description = "The deliveries", body = Grant),
        (status = 204, description = "No message was due"),
        (status = 404),
        (status = 504),
    )
)]
async fn claim_messages(
    State(app): State<Shared>,
    caller: Principal,
    name: QueueName,
    parts: Parts,
    JsonBody(claim): JsonBody<Claim>,
) -> Result<Response, Problem> {
    let admitted = admit(&app, &caller, &name, claim).await?;
    let pulled = pull(&app, admitted).await?;
    answer(&app, &parts, &name, pulled)
}

/// A claim that the server has room for, and that may wait for messages.
struct Admitted {
    request: Request,
    queue: Queue,
    puller: Puller,
    /// The permit and the attention that the claim keeps until its end.
    kept: (Permit, Attention),
}

/// The messages that a claim was granted.
struct Pulled {
    queue: Queue,
    deliveries: Vec<Delivery>,
    /// The number of further messages of the lease, if an earlier call with the `claim_id` was
    /// granted them.
    more: Option<u64>,
    has_id: bool,
}

/// Checks the values of the claim, and takes a permit and the node's attention to the queue.
async fn admit(
    app: &App,
    caller: &Principal,
    name: &QueueName,
    claim: Claim,
) -> Result<Admitted, Problem> {
    let request = claim.check(app, caller, name.as_str())?;
    let permit = app.claims.begin(&app.edge.meters.claims)?;
    let queue = match app.claims.attended.knows(name.as_str()) {
        true => app.client.queue(name.as_str())?,
        false => app.existing(name).await?,
    };
    let attention = app.claims.attended.attention(name.as_str())?;
    Ok(Admitted {
        puller: attention.puller(&queue).await?,
        request,
        queue,
        kept: (permit, attention),
    })
}

/// Waits for messages, or reads those that an earlier call with the same `claim_id` was granted.
async fn pull(app: &App, admitted: Admitted) -> Result<Pulled, Problem> {
    let Admitted {
        request,
        queue,
        puller,
        kept,
    } = admitted;
    let pulled = match request.token {
        // If the caller disconnects, the pull is dropped, and the library releases the messages
        // that it granted.
        None => {
            let end = over(request.wait, app.edge.life.stopping().clone());
            pull_until(puller, request, end, kept).await
        }
        Some(token) => {
            let place = app.claims.turns.join(token);
            repeatable(app, puller, request, place, kept).await?
        }
    };
    let (deliveries, more) = match pulled {
        // Another call with this `claim_id` may have waited too, and may have been granted the due
        // messages.
        Ok(deliveries) if deliveries.is_empty() && request.token.is_some() => {
            held(&queue, request.token).await?
        }
        Ok(deliveries) => (deliveries, None),
        Err(error) if error.code() == Some("HELD") => held(&queue, request.token).await?,
        Err(error) => {
            app.claims.attended.check_node();
            return Err(error.into());
        }
    };
    Ok(Pulled {
        queue,
        deliveries,
        more,
        has_id: request.token.is_some(),
    })
}

/// Answers with the deliveries, unless the caller has lost access meanwhile. Deliveries that the
/// caller does not receive are released, unless a repetition of the call can return them.
fn answer(app: &App, parts: &Parts, name: &QueueName, pulled: Pulled) -> Result<Response, Problem> {
    if pulled.deliveries.is_empty() {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    // The caller may have lost access while it waited.
    let access = app.edge.gate.principal(parts).and_then(|now| {
        check_right(&now, Right::Consume)?;
        app.edge.allow(&now, name.as_str())
    });
    // Deliveries that a repetition can return stay leased: if they were released now, they could be
    // delivered twice. A caller without access cannot repeat the call, but it may have received an
    // earlier answer.
    let is_kept = pulled.has_id && (pulled.more.is_some() || access.is_ok());
    let unreceived = Unreceived::new(&pulled.queue, &pulled.deliveries, &app.claims.tasks);
    let unreceived = match is_kept {
        true => {
            unreceived.received();
            None
        }
        false => Some(unreceived),
    };
    access?;
    let grant = answer::Encoded::new(pulled.deliveries, pulled.more, &app.edge.bodies)?;
    let outbox = parts.extensions.get::<Outbox>().cloned();
    Ok(grant.into_response(unreceived, outbox))
}

/// Completes when the wait is over, the server stops, or the caller disconnects.
async fn over(wait: Duration, stopped: CancellationToken) {
    tokio::select! {
        () = tokio::time::sleep(wait) => {}
        () = stopped.cancelled() => {}
    }
}

/// Pulls messages, and keeps the claim's permit and attention until the pull ends.
async fn pull_until<T>(
    puller: Puller,
    request: Request,
    end: impl Future<Output = ()>,
    _kept: T,
) -> Result<Vec<Delivery>, Error> {
    let Request {
        token, max, lease, ..
    } = request;
    puller.pull_until(token, max, lease, end).await
}

/// Pulls in a task, after other claims with this token have ended. If the caller disconnects, the
/// pull ends, and messages that a running claim grants stay leased: the repetition of the call
/// returns them. A dropped pull would release them.
async fn repeatable(
    app: &App,
    puller: Puller,
    request: Request,
    place: Place,
    kept: (Permit, Attention),
) -> Result<Result<Vec<Delivery>, Error>, Problem> {
    let gone = app.edge.life.stopping().child_token();
    let _at_drop = gone.clone().drop_guard();
    let pull = async move {
        let mut end = pin!(over(request.wait, gone));
        let _turn = tokio::select! {
            biased;
            turn = place.turn() => turn,
            () = &mut end => return Ok(Vec::new()),
        };
        pull_until(puller, request, end, kept).await
    };
    app.claims.tasks.spawn(pull).await.map_err(|_| {
        let detail = "the claim panicked; the log of the server has the reason";
        Problem::new(Code::Internal, detail).applied(dueq::Applied::Unknown)
    })
}

/// The deliveries that an earlier call with the same `claim_id` was granted, and the number of
/// further messages of the lease.
async fn held(
    queue: &Queue,
    token: Option<LeaseToken>,
) -> Result<(Vec<Delivery>, Option<u64>), Problem> {
    let Some(token) = token else {
        let detail = "a claim without claim_id was refused for its token";
        return Err(Problem::new(Code::Internal, detail));
    };
    let held = queue.held(&token).await?;
    Ok((held.deliveries, Some(held.more)))
}
