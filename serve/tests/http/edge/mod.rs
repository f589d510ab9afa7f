//! Connections and requests: their limits, and how they end.

mod bodies;
mod early;
mod hosts;
mod limits;
mod paths;
pub(crate) mod pressure;
mod problems;
mod ready;
mod smuggling;
mod stop;
mod tls;
