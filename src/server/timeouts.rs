//! The time limits of connections and calls.

use std::time::Duration;

/// How long opening a connection may take.
pub(crate) const CONNECT_LIMIT: Duration = Duration::from_secs(2);

/// How long one command may take before its connection is closed. Not less: the messages of a claim
/// that times out stay without a consumer until their leases run out, and servers do stall for
/// seconds, on a slow disk or in a fork.
pub(crate) const RESPONSE_LIMIT: Duration = Duration::from_secs(5);

/// After how long without traffic the system probes a connection. Firewalls and balancers forget
/// idle connections after four minutes or more.
pub(crate) const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);

/// How long it then waits for each answer.
pub(crate) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// How long a call is repeated before its error is reported.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// How long a read waits that names what it could not reach, instead of repeating its calls.
pub(crate) const REACH_LIMIT: Duration = Duration::from_secs(2);
