use std::future::ready;

use dueq_testkit::Server;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::*;
use crate::server::fake::{Fake, usual};
use crate::server::servers::Servers;

/// A listener on a private server.
struct Listening {
    server: Server,
    servers: Arc<Servers>,
    changes: UnboundedSender<SubscriptionChange>,
    events: UnboundedReceiver<Hint>,
    _task: JoinHandle<()>,
}

impl Listening {
    fn start(user: &str, server: Server) -> Self {
        let url = format!("redis://{user}127.0.0.1:{}/", server.port());
        let (servers, changes, events, task) = listener(&url);
        Self {
            server,
            servers,
            changes,
            events,
            _task: task,
        }
    }

    fn add(&self, number: u32) {
        let channel = Channel {
            queue_name: format!("queue-{number}"),
            name: format!("channel-{number}"),
            route: Route::new(Arc::clone(&self.servers), 0),
        };
        let change = SubscriptionChange::Add(PartitionId(number), channel);
        self.changes.send(change).expect("a listener");
    }

    fn remove(&self, number: u32) {
        let change = SubscriptionChange::Remove(PartitionId(number));
        self.changes.send(change).expect("a listener");
    }

    fn publish(&self, number: u32, payload: &str) -> String {
        let channel = format!("channel-{number}");
        let words = ["SPUBLISH", &channel, payload];
        self.server.command(&words).expect("a server")
    }

    async fn next(&mut self) -> Hint {
        self.events.recv().await.expect("a listener")
    }

    /// The next two hints, sorted by their partitions.
    async fn next_two(&mut self) -> [Hint; 2] {
        let mut hints = [self.next().await, self.next().await];
        hints.sort_by_key(|hint| match hint {
            Hint::Notice(partition, _) | Hint::Subscribed(partition) | Hint::Lost(partition) => {
                *partition
            }
        });
        hints
    }
}

/// Starts a listener on the server at this URL.
fn listener(
    url: &str,
) -> (
    Arc<Servers>,
    UnboundedSender<SubscriptionChange>,
    UnboundedReceiver<Hint>,
    JoinHandle<()>,
) {
    let servers = Servers::at(url);
    let Servers::One(link) = &*servers else {
        panic!("one server");
    };
    let (changes, received) = unbounded_channel();
    let (hints, events) = unbounded_channel();
    let report = move |hint| {
        // The send fails if the test has ended.
        let _ = hints.send(hint);
    };
    let task = tokio::spawn(listen(Arc::clone(link), received, report));
    (servers, changes, events, task)
}

const ONE: PartitionId = PartitionId(1);
const TWO: PartitionId = PartitionId(2);
const THREE: PartitionId = PartitionId(3);

#[tokio::test]
async fn channels_of_two_queues_share_a_connection() {
    let mut listening = Listening::start("", Server::start(&[]).expect("a server"));
    listening.add(1);
    listening.add(2);
    let subscribed = [Hint::Subscribed(ONE), Hint::Subscribed(TWO)];
    assert_eq!(listening.next_two().await, subscribed);
    listening.publish(2, "17");
    assert_eq!(listening.next().await, Hint::Notice(TWO, Some(17)));
    listening.publish(1, "");
    assert_eq!(listening.next().await, Hint::Notice(ONE, None));
    assert_eq!(listening.servers.opened(), 1);
}

#[tokio::test]
async fn a_removed_queue_gets_no_notices() {
    let mut listening = Listening::start("", Server::start(&[]).expect("a server"));
    listening.add(1);
    listening.add(2);
    listening.next_two().await;
    listening.remove(1);
    // The listener handles changes in order, so this one comes after the removal.
    listening.add(3);
    assert_eq!(listening.next().await, Hint::Subscribed(THREE));
    listening.publish(1, "17");
    listening.publish(2, "18");
    assert_eq!(listening.next().await, Hint::Notice(TWO, Some(18)));
    assert_eq!(listening.servers.opened(), 1);
}

#[tokio::test]
async fn a_lost_connection_is_reported_and_replaced() {
    let mut listening = Listening::start("", Server::start(&[]).expect("a server"));
    listening.add(1);
    listening.add(2);
    listening.next_two().await;
    let kill = ["CLIENT", "KILL", "TYPE", "pubsub"];
    listening.server.command(&kill).expect("a server");
    assert_eq!(
        listening.next_two().await,
        [Hint::Lost(ONE), Hint::Lost(TWO)]
    );
    let subscribed = [Hint::Subscribed(ONE), Hint::Subscribed(TWO)];
    assert_eq!(listening.next_two().await, subscribed);
    listening.publish(1, "17");
    assert_eq!(listening.next().await, Hint::Notice(ONE, Some(17)));
}

#[tokio::test]
async fn a_listener_ends_although_its_server_refuses_it() {
    let refusing = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = refusing.local_addr().expect("an address");
    let (servers, changes, _hints, task) = listener(&format!("redis://{address}/"));
    let channel = Channel {
        queue_name: "queue-1".to_owned(),
        name: "channel-1".to_owned(),
        route: Route::new(servers, 0),
    };
    let change = SubscriptionChange::Add(ONE, channel);
    changes.send(change).expect("a listener");
    // The listener connects once; from then on the server refuses it.
    drop(refusing.accept().await.expect("a connection"));
    drop(refusing);
    let change = SubscriptionChange::Remove(ONE);
    changes.send(change).expect("a listener");
    drop(changes);
    let ended = tokio::time::timeout(Duration::from_secs(30), task).await;
    ended.expect("the listener ends").expect("no panic");
}

#[tokio::test]
async fn an_added_queue_does_not_retry_a_denied_channel() {
    let server = Server::start(&[]).expect("a server");
    let rules = [
        "on",
        ">secret",
        "+@all",
        "~*",
        "resetchannels",
        "&channel-2",
        "&channel-3",
    ];
    let words = [&["ACL", "SETUSER", "limited"], &rules[..]].concat();
    server.command(&words).expect("a user");
    let mut listening = Listening::start("limited:secret@", server);
    listening.add(1);
    listening.add(2);
    assert_eq!(listening.next().await, Hint::Subscribed(TWO));
    let allow = ["ACL", "SETUSER", "limited", "&channel-1"];
    listening.server.command(&allow).expect("a server");
    listening.add(3);
    assert_eq!(listening.next().await, Hint::Subscribed(THREE));
    assert_eq!(listening.publish(1, "17"), ":0\r\n", "nobody listens");
    assert_eq!(listening.servers.opened(), 1);
}

#[tokio::test]
async fn a_temporary_refusal_is_retried_on_the_same_connection() {
    let (attempts, mut attempted) = watch::channel(0);
    let attempts = Arc::new(attempts);
    let server = Fake::start(move |_, words| {
        if words[0] != "SSUBSCRIBE" {
            return ready(usual(&words));
        }
        attempts.send_modify(|count| *count += 1);
        ready(Some("-MOVED 1 127.0.0.1:7000\r\n".to_owned()))
    })
    .await;
    let url = format!("redis://127.0.0.1:{}/", server.port);
    let (servers, changes, _hints, _listener) = listener(&url);
    let channel = Channel {
        queue_name: "queue-1".to_owned(),
        name: "channel-1".to_owned(),
        route: Route::new(Arc::clone(&servers), 0),
    };
    let change = SubscriptionChange::Add(ONE, channel);
    changes.send(change).expect("a listener");
    let enough = attempted.wait_for(|count| *count >= 3).await;
    enough.expect("a server");
    assert_eq!(servers.opened(), 1);
}
