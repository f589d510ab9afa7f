//! The queue over HTTP: [`router`] for a service of your own, [`Server`] for one of its own, and
//! `dueq serve` for both from a shell.
//!
//! The page docs/guide/http.md explains the calls, the roles and the codes of problems.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use dueq_serve::{Access, Config, Server};
//!
//! let client = dueq::Client::connect("redis://127.0.0.1/").await?;
//! let config = Config { access: Access::Tokens("tokens.toml".into()), ..Config::default() };
//! let server = Server::bind(client, config).await?;
//! server.run(async { drop(tokio::signal::ctrl_c().await) }).await;
//! # Ok(())
//! # }
//! ```

mod accept;
mod app;
mod audit;
mod auth;
mod body;
#[cfg(any(test, feature = "harness"))]
#[doc(hidden)] // What must hold for any bytes: for `fuzz/`.
pub mod checks;
mod claims;
mod config;
mod dashboard;
mod events;
mod metrics;
mod mount;
mod operations;
mod path;
mod poll;
mod problem;
mod routes;
mod server;
mod shown;
mod tls;

pub use auth::{Access, PublicUrl, QueuePattern, Role, TrustedProxy, add_token};
pub use config::Config;
pub use mount::router;
pub use server::Error;
pub use server::{Control, Server};
pub use tls::TlsFiles;
