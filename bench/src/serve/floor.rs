//! The floor of `serve`: axum handlers that store a message by one ZADD and one HSET, claim by a
//! script of ZRANGEBYSCORE, ZREM and HMGET, and settle by HDEL. Callers are not authenticated, a
//! repeated push overwrites, and a claimed message that is not settled is lost.

use anyhow::Result;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{post, put};
use axum::{Json, Router};
use deadpool_redis::{Config, Pool, Runtime};
use dueq_bench_driver::unix_us;
use redis::aio::MultiplexedConnection;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::fill::MAIN;
use crate::drive::floor::Calls;

/// The number of connections, equal to that of the library's pool.
const CONNECTIONS: usize = 8;
/// The delay that the body of the benchmark states in words.
const DELAY_MS: u64 = 48 * 3_600_000;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The URL of Redis
    url: String,
    /// All requests share one connection, whose client sends what waits at once
    #[arg(long)]
    shared: bool,
}

/// The connections to Redis.
#[derive(Clone)]
enum Store {
    /// Each request gets a connection of its own.
    Pool(Pool),
    Shared(MultiplexedConnection),
}

#[derive(Deserialize)]
struct Message {
    payload: String,
}

#[derive(Deserialize)]
struct Settlements {
    settlements: Vec<Settlement>,
}

#[derive(Deserialize)]
struct Settlement {
    handle: String,
}

#[derive(Serialize)]
struct Stored {
    id: String,
    due_ms: u64,
}

#[tokio::main]
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    let store = if arguments.shared {
        let client = redis::Client::open(&*arguments.url)?;
        Store::Shared(client.get_multiplexed_async_connection().await?)
    } else {
        let mut config = Config::from_url(&arguments.url);
        config.pool = Some(deadpool_redis::PoolConfig::new(CONNECTIONS));
        Store::Pool(config.create_pool(Some(Runtime::Tokio1))?)
    };
    let calls = Calls::connect(&arguments.url, MAIN).await?;
    let consumers = Router::new()
        .route("/v1/queues/main/claims", post(claim))
        .route("/v1/queues/main/settlements", post(settle))
        .with_state(calls);
    let router = Router::new()
        .route("/v1/queues/{queue}/messages/{id}", put(put_message))
        .route("/v1/queues/{queue}/messages", post(post_message))
        .with_state(store)
        .merge(consumers);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on http://{}", listener.local_addr()?);
    let served = axum::serve(listener, router);
    crate::unless_interrupted(async { Ok(served.await?) }).await
}

async fn claim(
    State(calls): State<Calls>,
    Json(_): Json<Value>,
) -> Result<Json<Value>, StatusCode> {
    let (ids, payloads) = calls.claim().await.map_err(|_| StatusCode::BAD_GATEWAY)?;
    let delivery = |(id, payload): (&Vec<u8>, &Vec<u8>)| {
        let [handle, payload] = [id, payload].map(|bytes| String::from_utf8_lossy(bytes));
        json!({ "handle": handle, "payload": payload })
    };
    let deliveries: Vec<_> = ids.iter().zip(&payloads).map(delivery).collect();
    Ok(Json(json!({ "deliveries": deliveries })))
}

async fn settle(
    State(calls): State<Calls>,
    Json(settlements): Json<Settlements>,
) -> Result<Json<Value>, StatusCode> {
    let ids = settlements.settlements.into_iter();
    let ids: Vec<_> = ids
        .map(|settlement| settlement.handle.into_bytes())
        .collect();
    let acked = calls.acknowledge(&ids).await;
    acked.map_err(|_| StatusCode::BAD_GATEWAY)?;
    Ok(Json(json!({ "settled": ids.len() })))
}

async fn put_message(
    State(store): State<Store>,
    Path((queue, id)): Path<(String, String)>,
    Json(message): Json<Message>,
) -> Result<(StatusCode, Json<Stored>), StatusCode> {
    let stored = store.push(&queue, id, message).await;
    stored.map_err(|_| StatusCode::BAD_GATEWAY)
}

async fn post_message(
    State(store): State<Store>,
    Path(queue): Path<String>,
    Json(message): Json<Message>,
) -> Result<(StatusCode, Json<Stored>), StatusCode> {
    let id = format!("{:022}", fastrand::u64(..));
    let stored = store.push(&queue, id, message).await;
    stored.map_err(|_| StatusCode::BAD_GATEWAY)
}

impl Store {
    async fn push(
        &self,
        queue: &str,
        id: String,
        message: Message,
    ) -> Result<(StatusCode, Json<Stored>)> {
        let due_ms = unix_us() / 1_000 + DELAY_MS;
        let mut both = redis::pipe();
        both.zadd(format!("{{{queue}}}:due"), &id, due_ms).hset(
            format!("{{{queue}}}:held"),
            &id,
            message.payload,
        );
        match self {
            Self::Pool(pool) => both.exec_async(&mut pool.get().await?).await?,
            Self::Shared(connection) => both.exec_async(&mut connection.clone()).await?,
        }
        Ok((StatusCode::CREATED, Json(Stored { id, due_ms })))
    }
}
