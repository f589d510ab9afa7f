use std::sync::Mutex;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::*;
use crate::protocol::keys::meta_glob;
use crate::server::fake::{Fake, bulk, usual};

/// A scanner, on a server that answers SCAN number N (from 0) with `answer(N)`.
async fn scanner(
    patterns: &[&str],
    step_pause: Duration,
    answer: impl Fn(usize) -> String + Send + Sync + 'static,
) -> Setup {
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
    let (sender, reports) = unbounded_channel();
    let report = Box::new(move |found| drop(sender.send(found)));
    let patterns = patterns.iter().map(|text| pattern(text)).collect();
    let (heard, hearing) = unbounded_channel();
    let mut scanner = Scanner::new(
        servers,
        patterns,
        Arc::default(),
        Arc::default(),
        report,
        hearing,
    );
    (scanner.step_pause, scanner.pass_pause) = (step_pause, Duration::from_millis(1));
    scanner.has_missed = false;
    Setup {
        scanner,
        heard,
        reports,
        scans,
        _server: server,
    }
}

struct Setup {
    scanner: Scanner,
    heard: UnboundedSender<NewQueue>,
    reports: UnboundedReceiver<Found>,
    scans: Scans,
    _server: Fake,
}

/// The time and the cursor of each SCAN.
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
        names: named(names).map(|name| (name, 0)).collect(),
        is_complete,
    }
}

impl Setup {
    /// The reports of the scanner since the last call.
    fn reported(&mut self) -> Vec<Found> {
        let mut all = Vec::new();
        while let Ok(found) = self.reports.try_recv() {
            all.push(found);
        }
        all
    }

    /// The report of a pass at its end.
    async fn pass(&mut self) -> Found {
        assert!(self.scanner.pass().await.is_some());
        self.reported().pop().expect("a report")
    }
}

const MS: Duration = Duration::from_millis(1);

#[tokio::test]
async fn a_pass_reports_new_names_at_once_and_all_at_its_end() {
    let mut setup = scanner(&["mail-*"], MS, |scan| match scan {
        0 => reply(7, named(&["mail-a", "other"])),
        1 => reply(9, named(&["mail-a"])),
        2 => reply(0, named(&["mail-b"])),
        // In the next pass mail-a is gone.
        _ => reply(0, named(&["mail-b"])),
    })
    .await;
    assert_eq!(setup.scanner.pass().await, Some(3));
    assert_eq!(
        setup.reported(),
        [
            found(&["mail-a"], false),
            found(&["mail-b"], false),
            found(&["mail-a", "mail-b"], true)
        ]
    );
    assert_eq!(cursors(&setup.scans), ["0", "7", "9"]);
    assert_eq!(setup.pass().await, found(&["mail-b"], true));
}

#[tokio::test]
async fn a_pass_finds_the_queues_of_all_patterns() {
    let mut setup = scanner(&["a*", "*b"], MS, |_| {
        reply(0, named(&["a", "ab", "b", "c"]))
    })
    .await;
    let names = [("a", 0), ("ab", 0), ("b", 1)].map(|(name, of)| (name.to_owned(), of));
    assert_eq!(setup.pass().await.names, BTreeMap::from(names));
    assert_eq!(cursors(&setup.scans), ["0"]);
}

#[tokio::test]
async fn a_created_queue_is_reported_at_once_and_kept_by_the_pass() {
    let mut setup = scanner(&["mail-*"], MS, |_| reply(0, named(&["mail-old"]))).await;
    for name in ["mail-new", "mail-absent", "other"] {
        let created = NewQueue::Created(name.to_owned());
        setup.heard.send(created).expect("it listens");
    }
    setup.scanner.next_step = Instant::now() + Duration::from_millis(50);
    setup.scanner.pass().await;
    let reported = setup.reported();
    assert_eq!(reported[0], found(&["mail-new"], false));
    assert_eq!(reported[2], found(&["mail-new", "mail-old"], true));
}

#[tokio::test]
async fn missed_creations_begin_a_pass_without_pauses() {
    let long = Duration::from_secs(3_600);
    let mut setup = scanner(&["*"], long, |scan| {
        reply((scan as u64 + 1) % 4, named(&[]))
    })
    .await;
    setup.heard.send(NewQueue::Listening).expect("it listens");
    assert_eq!(setup.scanner.pass().await, None);
    setup.scanner.is_quick = true;
    setup.scanner.next_step = Instant::now();
    assert!(setup.scanner.pass().await.is_some(), "no other replaces it");
    assert!(setup.scanner.is_quick && setup.scanner.has_missed);
}

#[tokio::test]
async fn a_failed_step_is_repeated_from_its_cursor() {
    let mut setup = scanner(&["*"], MS, |scan| match scan {
        0 => reply(7, named(&["a"])),
        1 => "-LOADING the data set\r\n".to_owned(),
        2 => "-NOPERM no right\r\n".to_owned(),
        _ => reply(0, named(&["b"])),
    })
    .await;
    assert_eq!(setup.pass().await, found(&["a", "b"], false));
    assert_eq!(cursors(&setup.scans), ["0", "7", "7", "7"]);
}

#[tokio::test]
async fn lost_connection_or_failed_step_leaves_the_scan_unanswered() {
    let mut setup = scanner(&["*"], MS, |_| reply(0, named(&[]))).await;
    let health = Arc::clone(&setup.scanner.health);
    health.scan_is_answered(false);
    setup.pass().await;
    assert!(health.is_scan_answered());
    setup.scanner.heard(Some(NewQueue::Silent)).await;
    assert!(health.is_scan_answered(), "the user may not listen");
    setup.scanner.heard(Some(NewQueue::Listening)).await;
    setup.scanner.heard(Some(NewQueue::Silent)).await;
    assert!(!health.is_scan_answered());
    setup.scanner.has_missed = false;
    setup.pass().await;
    assert!(health.is_scan_answered());
    setup.scanner.failed(&Error::invalid("refused".to_owned()));
    assert!(!health.is_scan_answered());
}

/// Queue names with these numbers.
fn numbered(numbers: impl Iterator<Item = usize>) -> impl Iterator<Item = String> {
    numbers.map(|number| format!("q-{number:05}"))
}

#[tokio::test]
async fn a_pattern_reports_at_most_its_limit_over_all_passes() {
    let mut setup = scanner(&["q-*"], MS, |scan| {
        let next = scan as u64 + 1;
        match scan {
            0 | 1 => reply(next, numbered(scan * 6_000..scan * 6_000 + 6_000)),
            2 => reply(0, numbered(12_000..13_000)),
            // The next pass finds other queues first. 100 of the reported ones are gone.
            3 => reply(next, numbered(12_000..20_000)),
            4 => reply(0, numbered(100..12_000)),
            _ => reply(0, numbered(100..20_000)),
        }
    })
    .await;
    let is_whole = |found: &Found, numbers: std::ops::Range<usize>| {
        found.is_complete && found.names.keys().cloned().eq(numbered(numbers))
    };
    setup.scanner.pass().await;
    let reports = setup.reported();
    let sizes: Vec<_> = reports.iter().map(|found| found.names.len()).collect();
    assert_eq!(sizes, [6_000, 4_000, MAX_QUEUES]);
    assert!(is_whole(&reports[2], 0..MAX_QUEUES));
    assert_eq!(cursors(&setup.scans), ["0", "1", "2"], "the pass goes on");
    setup.scanner.pass().await;
    let reports = setup.reported();
    assert_eq!(reports.len(), 2, "none of the others");
    assert!(is_whole(&reports[1], 100..MAX_QUEUES));
    let third = setup.pass().await;
    assert_eq!(third.names.len(), MAX_QUEUES, "others take their places");
    assert_eq!(setup.scanner.reported, third.names);
}

#[test]
fn many_nodes_together_scan_as_much_as_ten() {
    let crowd = Crowd::default();
    let second = Duration::from_secs(1);
    assert_eq!(crowd.stretched(second), second);
    for (nodes, seconds) in [(1, 1), (10, 1), (100, 10)] {
        crowd.saw(nodes);
        crowd.saw(1);
        assert_eq!(crowd.between(second), second * (nodes / 10) as u32);
        assert_eq!(crowd.stretched(second), second * seconds, "{nodes} nodes");
    }
    assert_eq!(crowd.stretched(second), second, "the others have gone");
}
