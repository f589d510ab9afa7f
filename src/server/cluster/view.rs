//! What one server reports about its cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Value};

use crate::error::Error;
use crate::protocol::keys::SLOTS;
use crate::server::cluster::slots::Address;
use crate::server::connect::target::Target;
use crate::server::failure;
use crate::server::info::{Info, unexpected};

/// How long a server may take to connect, and then to reply.
pub(super) const ASK_LIMIT: Duration = Duration::from_secs(1);

/// The masters of a cluster as one server knows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct View {
    /// The epoch of the cluster. It grows with every failover, and with most slots that change
    /// their master.
    pub(crate) epoch: u64,
    /// Whether the server reaches a majority and, unless configured otherwise, every slot is
    /// served.
    pub(crate) is_ok: bool,
    /// The first and last slot of each range, and the master that serves it.
    pub(crate) ranges: Vec<(u16, u16, Address)>,
    /// The masters with slots, and their replicas.
    pub(crate) nodes: BTreeSet<Address>,
}

impl View {
    /// Reads the replies of `asked` to CLUSTER INFO and CLUSTER SLOTS. Servers without a known host
    /// are left out.
    pub(crate) fn read(info: Value, slots: &Value, asked: &Address) -> Result<Self, Error> {
        let info = Info::read(info)?;
        let bad = || unexpected("CLUSTER SLOTS", slots);
        let mut view = Self {
            epoch: info.number("cluster_current_epoch").ok_or_else(bad)?,
            is_ok: info.field("cluster_state") == Some("ok"),
            ranges: Vec::new(),
            nodes: BTreeSet::new(),
        };
        let Value::Array(ranges) = slots else {
            return Err(bad());
        };
        for range in ranges {
            let Value::Array(parts) = range else {
                return Err(bad());
            };
            let [Value::Int(first), Value::Int(last), nodes @ ..] = &parts[..] else {
                return Err(bad());
            };
            let slot = |number: &i64| u16::try_from(*number).ok().filter(|slot| *slot < SLOTS);
            let (Some(first), Some(last)) = (slot(first), slot(last)) else {
                return Err(bad());
            };
            if first > last {
                return Err(bad());
            }
            let mut addresses = nodes.iter().map(|node| address(node, asked));
            if let Some(Some(master)) = addresses.next() {
                view.nodes.insert(master.clone());
                view.ranges.push((first, last, master));
            }
            view.nodes.extend(addresses.flatten());
        }
        Ok(view)
    }
}

/// The address of a server in the reply to CLUSTER SLOTS.
fn address(node: &Value, asked: &Address) -> Option<Address> {
    let Value::Array(parts) = node else {
        return None;
    };
    let [host, Value::Int(port), ..] = &parts[..] else {
        return None;
    };
    let host = match host {
        Value::BulkString(host) => String::from_utf8_lossy(host).into_owned(),
        Value::SimpleString(host) => host.clone(),
        Value::Nil => String::new(),
        _ => return None,
    };
    let host = match host.as_str() {
        "" => asked.host.clone(),
        // The server is configured to announce a host name, and has none.
        "?" => return None,
        _ => host,
    };
    let port = u16::try_from(*port).ok()?;
    Some(Address { host, port })
}

/// Asks a server for its view. Also returns the connection, for the next question.
pub(super) async fn ask(
    target: Target,
    address: &Address,
    connection: Option<MultiplexedConnection>,
) -> Result<(View, MultiplexedConnection), Error> {
    let mut connection = match connection {
        Some(connection) => connection,
        None => {
            let config = AsyncConnectionConfig::new()
                .set_connection_timeout(Some(ASK_LIMIT))
                .set_response_timeout(Some(ASK_LIMIT));
            let failed = |error| failure::of_connecting(&address.to_string(), error);
            let client = target.client().await?;
            let opening = client.get_multiplexed_async_connection_with_config(&config);
            opening.await.map_err(failed)?
        }
    };
    let mut questions = redis::pipe();
    questions.cmd("CLUSTER").arg("INFO");
    questions.cmd("CLUSTER").arg("SLOTS");
    let answers = connection.send_packed_commands(&questions, 0, 2).await;
    let answers = answers
        .and_then(|answers| answers.into_iter().map(Value::extract_error).collect())
        .map_err(|error| failure::of_call(&address.to_string(), error))?;
    let answers: Vec<Value> = answers;
    let [info, slots] = <[Value; 2]>::try_from(answers)
        .map_err(|answers| unexpected("CLUSTER INFO and CLUSTER SLOTS", &answers))?;
    Ok((View::read(info, &slots, address)?, connection))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str, port: u16) -> Address {
        Address {
            host: host.to_owned(),
            port,
        }
    }

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn info(state: &str) -> Value {
        bulk(&format!(
            "cluster_state:{state}\r\ncluster_current_epoch:6\r\n"
        ))
    }

    fn range(first: i64, last: i64, nodes: &[(Value, i64)]) -> Value {
        let node = |(host, port): &(Value, i64)| {
            Value::Array(vec![host.clone(), Value::Int(*port), bulk("id")])
        };
        let mut parts = vec![Value::Int(first), Value::Int(last)];
        parts.extend(nodes.iter().map(node));
        Value::Array(parts)
    }

    #[test]
    fn a_view_has_masters_and_replicas() {
        let slots = Value::Array(vec![
            range(0, 99, &[(bulk("a"), 1), (bulk("b"), 2)]),
            range(100, 16_383, &[(Value::Nil, 3), (bulk("?"), 4)]),
            range(7, 7, &[(bulk("?"), 5)]),
        ]);
        let view = View::read(info("ok"), &slots, &at("here", 1)).expect("a view");
        assert_eq!((view.epoch, view.is_ok), (6, true));
        let ranges = [(0, 99, at("a", 1)), (100, 16_383, at("here", 3))];
        assert_eq!(view.ranges, ranges);
        let nodes = BTreeSet::from([at("a", 1), at("b", 2), at("here", 3)]);
        assert_eq!(view.nodes, nodes);
        let view = View::read(info("fail"), &slots, &at("here", 1)).expect("a view");
        assert!(!view.is_ok);
    }

    #[test]
    fn malformed_replies_about_a_cluster_are_errors() {
        for slots in [
            Value::Nil,
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![range(0, 16_384, &[])]),
            Value::Array(vec![range(-1, 3, &[])]),
            Value::Array(vec![range(4, 3, &[])]),
        ] {
            assert!(
                View::read(info("ok"), &slots, &at("here", 1)).is_err(),
                "{slots:?}"
            );
        }
        let none = Value::Array(Vec::new());
        assert!(View::read(bulk(""), &none, &at("here", 1)).is_err());
    }
}
