//! The floor: an axum handler that stores a message by one ZADD and one HSET, and nothing else. No
//! callers are checked, a repeated push overwrites, and nothing is bounded.

use anyhow::Result;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{post, put};
use axum::{Json, Router};
use deadpool_redis::{Config, Pool, Runtime};
use dueq_bench_driver::unix_us;
use serde::{Deserialize, Serialize};

/// As many as the library's pool has.
const CONNECTIONS: usize = 8;
/// What the body of the benchmark says in words.
const DELAY_MS: u64 = 48 * 3_600_000;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The URL of Redis
    url: String,
}

#[derive(Deserialize)]
struct Message {
    payload: String,
}

#[derive(Serialize)]
struct Stored {
    id: String,
    due_ms: u64,
}

#[tokio::main]
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    let mut config = Config::from_url(&arguments.url);
    config.pool = Some(deadpool_redis::PoolConfig::new(CONNECTIONS));
    let pool = config.create_pool(Some(Runtime::Tokio1))?;
    let router = Router::new()
        .route("/v1/queues/{queue}/messages/{id}", put(put_message))
        .route("/v1/queues/{queue}/messages", post(post_message))
        .with_state(pool);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on http://{}", listener.local_addr()?);
    let served = axum::serve(listener, router);
    crate::interrupt::unless_interrupted(async { Ok(served.await?) }).await
}

async fn put_message(
    State(pool): State<Pool>,
    Path((queue, id)): Path<(String, String)>,
    Json(message): Json<Message>,
) -> Result<(StatusCode, Json<Stored>), StatusCode> {
    let stored = store(&pool, &queue, id, message).await;
    stored.map_err(|_| StatusCode::BAD_GATEWAY)
}

async fn post_message(
    State(pool): State<Pool>,
    Path(queue): Path<String>,
    Json(message): Json<Message>,
) -> Result<(StatusCode, Json<Stored>), StatusCode> {
    let id = format!("{:022}", fastrand::u64(..));
    let stored = store(&pool, &queue, id, message).await;
    stored.map_err(|_| StatusCode::BAD_GATEWAY)
}

async fn store(
    pool: &Pool,
    queue: &str,
    id: String,
    message: Message,
) -> Result<(StatusCode, Json<Stored>)> {
    let due_ms = unix_us() / 1_000 + DELAY_MS;
    let mut connection = pool.get().await?;
    redis::pipe()
        .zadd(format!("{{{queue}}}:due"), &id, due_ms)
        .hset(format!("{{{queue}}}:held"), &id, message.payload)
        .exec_async(&mut connection)
        .await?;
    Ok((StatusCode::CREATED, Json(Stored { id, due_ms })))
}
