use std::future::ready;

use dueq_testkit::Server;
use tokio::sync::watch;

use super::*;
use crate::server::fake::{Fake, bulk, usual};
use crate::server::servers::Servers;

fn route(url: &str) -> Route {
    Route::new(Servers::at(url), 0)
}

fn list(route: &Route, number: u32, key: &str) -> WakeUpList {
    WakeUpList {
        partition: PartitionId(number),
        remote: Partition::unconnected(),
        queue_name: format!("queue-{number}"),
        key: key.to_owned(),
        route: route.clone(),
    }
}

fn token(number: u32) -> WakeUp {
    WakeUp::Token(PartitionId(number))
}

/// The failure of a pop over the lists of queues 1 and 2.
fn failed() -> WakeUp {
    WakeUp::Failed(vec![PartitionId(1), PartitionId(2)])
}

/// Creates a user `limited` with these rules of an ACL. Returns the URL with that user.
fn limited(server: &Server, rules: &[&str]) -> String {
    let words = [&["ACL", "SETUSER", "limited", "on", ">secret"], rules].concat();
    server.command(&words).expect("a user");
    format!("redis://limited:secret@127.0.0.1:{}/", server.port())
}

#[tokio::test]
async fn a_token_is_reported_with_its_queue() {
    let server = Server::start(&[]).expect("a server");
    let mut wakes = WakeUps::default();
    let route = route(&server.url());
    wakes.listen(vec![list(&route, 1, "one"), list(&route, 2, "two")]);
    for (key, number) in [("two", 2), ("one", 1), ("two", 2)] {
        server.command(&["RPUSH", key, "1"]).expect("a token");
        assert_eq!(wakes.wait(true).await, token(number));
    }
}

#[tokio::test]
async fn a_list_that_was_served_is_the_last_of_the_next_pop() {
    let server = Server::start(&[]).expect("a server");
    let tokens = ["1"; 5];
    for key in ["one", "two", "three"] {
        let words = [&["RPUSH", key], &tokens[..]].concat();
        server.command(&words).expect("tokens");
    }
    let mut wakes = WakeUps::default();
    let route = route(&server.url());
    wakes.listen(vec![
        list(&route, 1, "one"),
        list(&route, 2, "two"),
        list(&route, 3, "three"),
    ]);
    for number in [1, 2, 3, 1, 2, 3] {
        assert_eq!(wakes.wait(true).await, token(number));
    }
}

#[tokio::test]
async fn a_list_with_a_key_of_another_type_is_left_out() {
    let server = Server::start(&[]).expect("a server");
    server.command(&["SET", "one", "text"]).expect("a string");
    let mut wakes = WakeUps::default();
    let route = route(&server.url());
    wakes.listen(vec![list(&route, 1, "one"), list(&route, 2, "two")]);
    assert_eq!(wakes.wait(true).await, failed());
    assert!(!wakes.covers(PartitionId(1)) && wakes.covers(PartitionId(2)));
    server.command(&["RPUSH", "two", "1"]).expect("a token");
    assert_eq!(wakes.wait(true).await, token(2));
}

#[tokio::test]
async fn a_list_that_the_user_may_not_pop_is_left_out() {
    let server = Server::start(&[]).expect("a server");
    // LLEN is denied as well, which says nothing about the right to pop.
    let url = limited(&server, &["+@all", "-llen", "~two"]);
    let mut wakes = WakeUps::default();
    let route = route(&url);
    wakes.listen(vec![list(&route, 1, "one"), list(&route, 2, "two")]);
    assert_eq!(wakes.wait(true).await, failed());
    assert!(!wakes.covers(PartitionId(1)) && wakes.covers(PartitionId(2)));
    server.command(&["RPUSH", "two", "1"]).expect("a token");
    assert_eq!(wakes.wait(true).await, token(2));
}

#[tokio::test]
async fn lists_of_different_acl_rules_are_popped_one_at_a_time() {
    let server = Server::start(&[]).expect("a server");
    let selectors = ["+@all", "-blpop", "(+blpop ~one)", "(+blpop ~two)"];
    let mut wakes = WakeUps::default();
    let route = route(&limited(&server, &selectors));
    wakes.listen(vec![list(&route, 1, "one"), list(&route, 2, "two")]);
    assert_eq!(wakes.wait(true).await, failed());
    assert!(wakes.covers(PartitionId(1)) && !wakes.covers(PartitionId(2)));
    for key in ["two", "one"] {
        server.command(&["RPUSH", key, "1"]).expect("a token");
    }
    assert_eq!(wakes.wait(true).await, token(1));
    assert!(wakes.covers(PartitionId(1)) && !wakes.covers(PartitionId(2)));
    // From now on one rule grants both lists. After the pause, a pop covers both again.
    let rules = ["ACL", "SETUSER", "limited", "+blpop", "~*"];
    server.command(&rules).expect("a user");
    for pop in wakes.pops.values_mut() {
        pop.one_until = Some(Instant::now());
    }
    assert_eq!(wakes.wait(true).await, token(2));
    assert!(wakes.covers(PartitionId(1)) && wakes.covers(PartitionId(2)));
}

/// A server that answers each BLPOP with a token of the first list. Also returns the number of
/// pops.
async fn counted() -> (Fake, watch::Receiver<usize>) {
    let (pops, counted) = watch::channel(0);
    let pops = Arc::new(pops);
    let server = Fake::start(move |_, words| {
        if words[0] != "BLPOP" {
            return ready(usual(&words));
        }
        pops.send_modify(|count| *count += 1);
        ready(Some(format!("*2\r\n{}{}", bulk(&words[1]), bulk("1"))))
    })
    .await;
    (server, counted)
}

#[tokio::test]
async fn a_wait_without_lists_sends_no_command() {
    let (server, pops) = counted().await;
    let route = route(&format!("redis://127.0.0.1:{}/", server.port));
    let mut wakes = WakeUps::default();
    let limit = Duration::from_millis(20);
    tokio::time::timeout(limit, wakes.wait(true))
        .await
        .expect_err("it pends");
    assert!(!wakes.is_waiting());
    assert_eq!((*pops.borrow(), route.servers().opened()), (0, 0));
    wakes.listen(vec![list(&route, 1, "one")]);
    assert_eq!(wakes.wait(true).await, token(1));
    assert_eq!(*pops.borrow(), 1);
}

#[tokio::test]
async fn dropping_a_wait_keeps_its_pop_in_flight() {
    let server = Server::start(&[]).expect("a server");
    let mut wakes = WakeUps::default();
    let route = route(&server.url());
    wakes.listen(vec![list(&route, 1, "one")]);
    let limit = Duration::from_millis(20);
    tokio::time::timeout(limit, wakes.wait(true))
        .await
        .expect_err("no token");
    assert!(wakes.is_waiting());
    wakes.listen(vec![list(&route, 2, "two")]);
    assert!(wakes.covers(PartitionId(1)) && !wakes.covers(PartitionId(2)));
    server.command(&["RPUSH", "one", "1"]).expect("a token");
    assert_eq!(wakes.wait(true).await, token(1));
    assert!(wakes.covers(PartitionId(2)));
}
