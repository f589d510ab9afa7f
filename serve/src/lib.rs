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

#[cfg(any(test, feature = "harness"))]
#[doc(hidden)] // What must hold for any bytes: for `fuzz/`.
pub mod checks;
mod dashboard;
mod edge;
mod mount;
mod probes;
mod routes;
mod server;
mod wire;
mod work;

pub use edge::Error;
pub use edge::auth::{Access, NamePattern, PublicUrl, Role, TrustedProxy, add_token};
pub use edge::config::Config;
pub use edge::tls::TlsFiles;
pub use mount::router;
pub use probes::Probes;
pub use server::{Control, Server};
