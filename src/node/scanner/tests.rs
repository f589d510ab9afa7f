use std::sync::Mutex;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::*;
use crate::protocol::keys::meta_glob;
use crate::server::fake::{Fake, bulk, usual};

/// A scanner of a server that answers the SCAN with this number, from 0 on, as `answer` says.
async fn scanner(
    step_pause: Duration,
    answer: impl Fn(usize) -> String + Send + Sync + 'static,
) -> (Scanner, UnboundedReceiver<Event>, Fake, Scans) {
    let scans = Scans::default();
    let seen = Arc::clone(&scans);
    let answer = Arc::new(answer);
    let server = Fake::start(move |_, words| {
        let reply = if words[0] == "SCAN" {
            let mut seen = seen.lock().expect("no panic");
            seen.push((Instant::now(), words[1].clone()));
            Some(answer(seen.len() - 1))
        } else {
            usual(&words)
        };
        std::future::ready(reply)
    })
    .await;
    let url = format!("redis://127.0.0.1:{}/", server.port);
    let servers = Servers::at(&url);
    let (sender, events) = unbounded_channel();
    let scanner = Scanner::new(servers, sender, step_pause, Duration::from_millis(1));
    (scanner, events, server, scans)
}

/// When each SCAN came, and its cursor.
type Scans = Arc<Mutex<Vec<(Instant, String)>>>;

fn cursors(scans: &Scans) -> Vec<String> {
    let scans = scans.lock().expect("no panic");
    scans.iter().map(|(_, cursor)| cursor.clone()).collect()
}

fn reply(cursor: u64, names: impl IntoIterator<Item = String>) -> String {
    let keys = names.into_iter();
    let keys: Vec<_> = keys.map(|name| bulk(&meta_glob(&name))).collect();
    let count = keys.len();
    format!(
        "*2\r\n{}*{count}\r\n{}",
        bulk(&cursor.to_string()),
        keys.concat()
    )
}

fn named(names: &[&str]) -> impl Iterator<Item = String> {
    names.iter().map(|name| (*name).to_owned())
}

fn pattern(text: &str) -> Pattern {
    Pattern::new(text).expect("a pattern")
}

fn found(names: &[&str], is_complete: bool) -> Found {
    Found {
        pattern: 0,
        names: named(names).collect(),
        is_complete,
    }
}

fn reported(events: &mut UnboundedReceiver<Event>) -> Vec<Found> {
    let mut all = Vec::new();
    while let Ok(event) = events.try_recv() {
        if let Event::Found(found) = event {
            all.push(found);
        }
    }
    all
}

#[tokio::test]
async fn a_pass_reports_new_names_at_once_and_all_at_its_end() {
    let (mut scanner, mut events, _server, scans) =
        scanner(Duration::from_millis(1), |scan| match scan {
            0 => reply(7, named(&["mail-a", "other"])),
            1 => reply(9, named(&["mail-a"])),
            2 => reply(0, named(&["mail-b"])),
            // The next pass: mail-a is gone.
            _ => reply(0, named(&["mail-b"])),
        })
        .await;
    let (mail, mut attended) = (pattern("mail-*"), BTreeSet::new());
    assert_eq!(
        scanner.pass(0, &mail, &mut attended).await,
        found(&["mail-a", "mail-b"], true)
    );
    assert_eq!(
        reported(&mut events),
        [found(&["mail-a"], false), found(&["mail-b"], false)]
    );
    assert_eq!(cursors(&scans), ["0", "7", "9"]);
    let next = scanner.pass(0, &mail, &mut attended).await;
    assert_eq!(next, found(&["mail-b"], true));
}

#[tokio::test]
async fn the_passes_of_all_patterns_share_one_pace() {
    let pause = Duration::from_millis(20);
    let (mut scanner, _events, _server, scans) =
        scanner(pause, |scan| reply((scan as u64 + 1) % 2, named(&[]))).await;
    for text in ["a-*", "b-*", "c-*"] {
        let mut attended = BTreeSet::new();
        scanner.pass(0, &pattern(text), &mut attended).await;
    }
    let scans = scans.lock().expect("no panic");
    assert_eq!(scans.len(), 6);
    for step in scans.windows(2) {
        assert!(step[1].0 - step[0].0 >= pause, "{step:?}");
    }
}

#[tokio::test]
async fn a_failed_step_is_repeated_from_its_cursor() {
    let (mut scanner, _events, _server, scans) =
        scanner(Duration::from_millis(1), |scan| match scan {
            0 => reply(7, named(&["a"])),
            1 => "-LOADING the data set\r\n".to_owned(),
            2 => "-NOPERM no right\r\n".to_owned(),
            _ => reply(0, named(&["b"])),
        })
        .await;
    let pass = scanner.pass(0, &pattern("*"), &mut BTreeSet::new()).await;
    assert_eq!(pass, found(&["a", "b"], false));
    assert_eq!(cursors(&scans), ["0", "7", "7", "7"]);
}

/// The names of these queues.
fn numbered(numbers: impl Iterator<Item = usize>) -> impl Iterator<Item = String> {
    numbers.map(|number| format!("q-{number:05}"))
}

#[tokio::test]
async fn all_passes_together_report_no_more_than_the_limit() {
    let (mut scanner, mut events, _server, scans) = scanner(Duration::from_millis(1), |scan| {
        let next = scan as u64 + 1;
        match scan {
            0 | 1 => reply(next, numbered(scan * 6_000..scan * 6_000 + 6_000)),
            2 => reply(0, numbered(12_000..13_000)),
            // The next pass sees other queues first. Of those it reported, 100 are gone.
            3 => reply(next, numbered(12_000..20_000)),
            4 => reply(0, numbered(100..12_000)),
            _ => reply(0, numbered(100..20_000)),
        }
    })
    .await;
    let (all, mut attended) = (pattern("q-*"), BTreeSet::new());
    let first = scanner.pass(0, &all, &mut attended).await;
    assert!(first.is_complete);
    assert!(first.names.iter().cloned().eq(numbered(0..MAX_QUEUES)));
    assert_eq!(cursors(&scans), ["0", "1", "2"], "the pass goes on");
    let reported_sizes = |events: &mut UnboundedReceiver<Event>| -> Vec<_> {
        let reported = reported(events);
        reported.iter().map(|found| found.names.len()).collect()
    };
    assert_eq!(reported_sizes(&mut events), [6_000, 4_000]);
    let second = scanner.pass(0, &all, &mut attended).await;
    assert!(second.is_complete);
    assert!(second.names.iter().cloned().eq(numbered(100..MAX_QUEUES)));
    assert_eq!(reported_sizes(&mut events), [9_900], "none of the others");
    let third = scanner.pass(0, &all, &mut attended).await;
    assert_eq!(third.names.len(), MAX_QUEUES, "others take their places");
    assert_eq!(attended, third.names);
}

#[test]
fn many_nodes_scan_as_much_as_ten() {
    let crowd = Crowd::default();
    let second = Duration::from_secs(1);
    assert_eq!(crowd.stretched(second), second);
    for (nodes, seconds) in [(1, 1), (10, 1), (100, 10)] {
        crowd.saw(nodes);
        crowd.saw(1);
        assert_eq!(crowd.stretched(second), second * seconds, "{nodes} nodes");
    }
    assert_eq!(crowd.stretched(second), second, "the others have gone");
}
