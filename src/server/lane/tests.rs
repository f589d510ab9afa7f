use std::future::ready;

use tokio::sync::watch;

use super::*;
use crate::error::ErrorKind;
use crate::server::connect::options::ClientOptions;
use crate::server::fake::{Fake, StoppedClock, usual};
use crate::server::patience::RESPONSE_LIMIT;
use crate::server::patience::Repeat;
use crate::server::route::RoutedLane;
use crate::server::servers::Servers;

/// Two calls of one lane wait on a connection that has fallen silent; the second began one second
/// after the first.
#[tokio::test(start_paused = true)]
async fn a_late_timeout_does_not_close_the_next_connection() {
    let _clock = StoppedClock::new();
    let asked = watch::Sender::new(0);
    let server = Fake::start({
        let asked = asked.clone();
        move |connection, words| {
            let silent = connection == 0 && words[0] == "INFO";
            asked.send_modify(|count| *count += u32::from(silent));
            ready(usual(&words).filter(|_| !silent))
        }
    })
    .await;
    let url = format!("redis://127.0.0.1:{}/", server.port);
    let connector = Arc::new(Connector::new(&url, &ClientOptions::new()).expect("a URL"));
    let lane = Arc::new(Lane::new(Arc::clone(&connector), Arc::new(Clock::new())));
    let call = || {
        let lane = Arc::clone(&lane);
        async move { lane.command(&redis::cmd("INFO")).await }
    };
    let first = tokio::spawn(call());
    asked
        .subscribe()
        .wait_for(|count| *count == 1)
        .await
        .expect("a sender");
    tokio::time::advance(Duration::from_secs(1)).await;
    let second = tokio::spawn(call());
    asked
        .subscribe()
        .wait_for(|count| *count == 2)
        .await
        .expect("a sender");
    for _ in 1..RESPONSE_LIMIT.as_secs() {
        tokio::time::advance(Duration::from_secs(1)).await;
        tokio::task::yield_now().await;
    }
    first.await.expect("no panic").expect_err("silence");
    call().await.expect("an answer on the new connection");
    assert!(!second.is_finished());
    tokio::time::advance(Duration::from_secs(1)).await;
    second.await.expect("no panic").expect_err("silence");
    call().await.expect("an answer");
    assert_eq!(
        connector.opened(),
        2,
        "the healthy connection was closed by the other one's timeout"
    );
}

#[tokio::test]
async fn a_redirection_is_reported_at_once() {
    let calls = watch::Sender::new(0);
    let server = Fake::start({
        let calls = calls.clone();
        move |_, words| {
            let call = words[0] == "EVALSHA";
            calls.send_modify(|count| *count += u32::from(call));
            ready(if call {
                Some("-MOVED 3999 127.0.0.1:6381\r\n".to_owned())
            } else {
                usual(&words)
            })
        }
    })
    .await;
    let url = format!("redis://127.0.0.1:{}/", server.port);
    let keys = Keys::of_queue("orders").expect("a name");
    let lane = RoutedLane::control(&Servers::at(&url).route(&keys));
    let error = lane
        .call_patiently(Verb::Stats, &keys, &[b""], Repeat::Harmless, |_| ())
        .await
        .expect_err("moved");
    assert_eq!(
        (error.kind(), error.was_applied(), *calls.borrow()),
        (ErrorKind::Unsupported, Applied::No, 1)
    );
    assert!(
        error.to_string().contains("MOVED 3999 127.0.0.1:6381"),
        "{error}"
    );
}

/// The server answers on new connections, but takes long for one of its replies.
#[tokio::test]
async fn a_dead_connection_is_given_up_and_a_slow_one_is_not() {
    let server = Fake::start(|connection, words: Vec<String>| async move {
        match (connection, &*words[0]) {
            (0, "TIME") => None,
            (_, "TIME") => {
                tokio::time::sleep(Duration::from_secs(2)).await;
                Some("*0\r\n".to_owned())
            }
            (_, "EVALSHA") => Some("-NOSCRIPT no such script\r\n".to_owned()),
            _ => usual(&words),
        }
    })
    .await;
    let url = format!("redis://127.0.0.1:{}/", server.port);
    let connector = Arc::new(Connector::new(&url, &ClientOptions::new()).expect("a URL"));
    let lane = Lane::new(Arc::clone(&connector), Arc::new(Clock::new()));
    let (info, time) = (redis::cmd("INFO"), redis::cmd("TIME"));
    lane.command(&info).await.expect("a fast reply");
    let sent = Instant::now();
    let error = lane.command(&time).await.expect_err("silence");
    assert_eq!(
        (error.kind(), error.was_applied()),
        (ErrorKind::Unavailable, Applied::Unknown),
        "{error}"
    );
    assert!(sent.elapsed() < RESPONSE_LIMIT, "{:?}", sent.elapsed());
    // On a slow network small replies arrive soon, and a large one only after some tries.
    let after_fast_replies = async {
        for _ in 0..4 {
            lane.command(&info).await.expect("a fast reply");
            if lane.command(&time).await.is_ok() {
                return;
            }
        }
        panic!("every connection was given up before the slow reply");
    };
    // A connection with only large replies is never doubted.
    let other = Arc::new(Connector::new(&url, &ClientOptions::new()).expect("a URL"));
    let slow_lane = Lane::new(Arc::clone(&other), Arc::new(Clock::new()));
    let only_slow_replies = async {
        for _ in 0..2 {
            slow_lane.command(&time).await.expect("a slow reply");
        }
    };
    tokio::join!(after_fast_replies, only_slow_replies);
    assert_eq!(other.opened(), 1);
}
