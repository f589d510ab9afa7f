//! A server on real sockets and a real Redis.

mod audit;
mod bodies;
mod bypass;
mod claims;
mod embedded;
mod hosts;
mod instance;
mod limits;
mod lists;
mod matrix;
mod messages;
mod metrics;
mod names;
mod observe;
mod pages;
mod paths;
mod payloads;
mod problems;
mod proxy;
mod pushes;
mod session;
mod settlements;
mod smuggling;
mod stop;
mod tls;
mod tokens;
