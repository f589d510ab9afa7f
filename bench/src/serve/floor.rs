//! The floor: an axum handler that stores a message by one ZADD and one HSET, and nothing else. No
//! callers are checked, a repeated push overwrites, and nothing is bounded.

use anyhow::Result;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{post, put};
use axum::{Json, Router};
use deadpool_redis::{Config, Pool, Runtime};
use dueq_bench_driver::unix_us;
use redis::aio::MultiplexedConnection;
use serde::{Deserialize, Serialize};

/// As many as the library's pool has.
const CONNECTIONS: usize = 8;
/// What the body of the benchmark says in words.
const DELAY_MS: u64 = 48 * 3_600_000;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The URL of Redis
    url: String,
    /// All requests share one connection, whose client sends what waits at once
    #[arg(long)]
    shared: bool,
}

/// The connections.
#[derive(Clone)]
enum Store {
    /// A request has a connection for itself.
    Pool(Pool),
    Shared(MultiplexedConnection),
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
    let store = if arguments.shared {
        let client = redis::Client::open(&*arguments.url)?;
        Store::Shared(client.get_multiplexed_async_connection().await?)
    } else {
        let mut config = Config::from_url(&arguments.url);
        config.pool = Some(deadpool_redis::PoolConfig::new(CONNECTIONS));
        Store::Pool(config.create_pool(Some(Runtime::Tokio1))?)
    };
    let router = Router::new()
        .route("/v1/queues/{queue}/messages/{id}", put(put_message))
        .route("/v1/queues/{queue}/messages", post(post_message))
        .with_state(store);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on http://{}", listener.local_addr()?);
    let served = axum::serve(listener, router);
    crate::interrupt::unless_interrupted(async { Ok(served.await?) }).await
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
