use std::future::ready;
use std::sync::Mutex;

use redis::IntoConnectionInfo;

use super::*;
use crate::server::cluster::refresher;
use crate::server::cluster::topology::Topology;
use crate::server::fake::{Fake, bulk, usual};
use crate::server::servers::Cluster;

/// The scripts that a server was called with, and each ASKING.
type Seen = Arc<Mutex<Vec<String>>>;

/// Starts the only master of a cluster. It answers scripts with `reply`, which gets the server's
/// port.
async fn node(reply: impl Fn(u16) -> String + Send + Sync + 'static) -> (Fake, Seen) {
    let seen = Seen::default();
    let (record, reply) = (Arc::clone(&seen), Arc::new(reply));
    let server = Fake::start_knowing_its_port(move |port, words| {
        let answer = match words[0].as_str() {
            "CLUSTER" if words[1] == "INFO" => {
                Some(bulk("cluster_state:ok\r\ncluster_current_epoch:1\r\n"))
            }
            "CLUSTER" => Some(format!(
                "*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n{}:{port}\r\n{}",
                bulk("127.0.0.1"),
                bulk("id")
            )),
            "EVALSHA" | "EVAL" | "ASKING" => {
                record.lock().expect("no panic").push(words[0].clone());
                let asked = words[0] == "ASKING";
                Some(if asked {
                    "+OK\r\n".to_owned()
                } else {
                    reply(port)
                })
            }
            _ => usual(&words),
        };
        ready(answer)
    })
    .await;
    (server, seen)
}

fn commands(seen: &Seen) -> Vec<String> {
    seen.lock().expect("no panic").clone()
}

/// A lane of a queue in the cluster of this server.
async fn lane(server: &Fake) -> (RoutedLane, Keys) {
    let url = format!("redis://127.0.0.1:{}/", server.port);
    let topology = Topology::new(vec![url.into_connection_info().expect("a URL").into()]);
    refresher::refresh(&topology).await.expect("a cluster");
    let servers = Arc::new(Servers::Cluster(Arc::new(Cluster::new(topology, false))));
    let keys = Keys::of_queue("orders").expect("a name");
    (RoutedLane::control(&servers.route(&keys)), keys)
}

#[tokio::test]
async fn servers_that_redirect_to_each_other_end_the_call() {
    let (here, seen) = node(|port| format!("-MOVED 3999 127.0.0.1:{port}\r\n")).await;
    let (lane, keys) = lane(&here).await;
    let called = lane.call(Verb::Stats, &keys, &[b""]).await;
    let Err(error) = called else {
        panic!("it leads back");
    };
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(error.was_applied(), Applied::No);
    assert_eq!(commands(&seen).len(), 1 + MAX_REDIRECTS as usize);
}

#[tokio::test]
async fn asking_precedes_each_form_of_the_script() {
    let (there, seen) = node(|_| "-NOSCRIPT none\r\n".to_owned()).await;
    let port = there.port;
    let (here, asked) = node(move |_| format!("-ASK 3999 127.0.0.1:{port}\r\n")).await;
    let (lane, keys) = lane(&here).await;
    let called = lane.call(Verb::Stats, &keys, &[b""]).await;
    assert!(called.is_err());
    assert_eq!(commands(&asked), ["EVALSHA"]);
    assert_eq!(commands(&seen), ["ASKING", "EVALSHA", "ASKING", "EVAL"]);
    // The slot has not moved yet, so the next call goes to the first server again.
    let called = lane.call(Verb::Stats, &keys, &[b""]).await;
    assert!(called.is_err());
    assert_eq!(commands(&asked), ["EVALSHA", "EVALSHA"]);
}

#[tokio::test]
async fn an_error_that_a_script_raises_is_not_followed() {
    let (here, seen) = node(|_| "-BADARGS no\r\n".to_owned()).await;
    let (lane, keys) = lane(&here).await;
    let called = lane.call(Verb::Stats, &keys, &[b""]).await;
    let kind = called.map(drop).map_err(|error| error.kind());
    assert_eq!(kind, Err(ErrorKind::InvalidInput));
    assert_eq!(commands(&seen), ["EVALSHA"]);
}
