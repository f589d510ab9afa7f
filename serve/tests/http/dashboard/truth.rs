//! Compares the numbers on a queue's page with those that the test itself has counted.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use dueq::inspect::HistoryResolution;
use dueq::outcomes::CancelOutcome;
use dueq::{Client, Delivery, Due, Queue, Retry, WorkerHandle};

use crate::instance::Instance;

/// Far longer than the test takes.
const LIMIT: Duration = Duration::from_secs(120);
const HOUR: Duration = Duration::from_secs(3_600);
/// The number of messages that are handled, of those that are cancelled, and of those whose
/// consumer crashes.
const HANDLED: u64 = 210;
const CANCELLED: u64 = 187;
const CRASHED: u64 = 3;
const MAX_ATTEMPTS: u32 = 3;
/// The number of buckets of a histogram. Bucket N ends at 2^(7 + N/2) µs.
const BUCKETS: u32 = 67;

/// What the handler recorded about one delivery.
#[derive(Debug, Clone, Copy)]
struct Handled {
    /// Bounds of the lateness: the node reads the clock after the first of these times and before
    /// the second. Both are counted from the due time.
    least_late_us: u64,
    most_late_us: u64,
    begin: Instant,
    took: Duration,
}

#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<Handled>>>);

impl Notes {
    fn all(&self) -> Vec<Handled> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_micros()).unwrap_or(u64::MAX)
}

/// A payload: what the handler does, how long it takes, and when the message was pushed.
fn payload(what: &str, number: u64) -> String {
    format!("{what} {} {}", 10 << (number % 6), now_us())
}

async fn handle(notes: Notes, delivery: Delivery) -> Result<(), String> {
    let (begin, start_us) = (Instant::now(), now_us());
    let text = String::from_utf8_lossy(delivery.payload()).into_owned();
    let mut words = text.split(' ');
    let what = words.next().unwrap_or_default();
    let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
    let (ms, pushed_us) = (number().unwrap_or(0), number().unwrap_or(0));
    tokio::time::sleep(Duration::from_millis(ms)).await;
    // The handler itself makes the call, so the call is part of the handler time that the node
    // measures.
    let is_buried = what == "bury" && delivery.bury("the test says so").await.is_ok();
    let due_us = delivery.due_ms() * 1_000;
    // A retried delivery has a new due time.
    let least_us = if delivery.attempt() == 1 {
        pushed_us
    } else {
        0
    };
    let handled = Handled {
        least_late_us: least_us.saturating_sub(due_us),
        most_late_us: start_us.saturating_sub(due_us),
        begin,
        took: begin.elapsed(),
    };
    let mut all = notes.0.lock().unwrap_or_else(PoisonError::into_inner);
    all.push(handled);
    match what {
        "bury" if !is_buried => Err("the bury failed".to_owned()),
        "retry" if delivery.attempt() == 1 => Err("the test says so".to_owned()),
        "fail" => Err("the test says so each time".to_owned()),
        _ => Ok(()),
    }
}

async fn worker(url: &str, notes: &Notes) -> Result<WorkerHandle> {
    let queue = Client::connect(url).await?.queue("orders")?;
    let notes = notes.clone();
    let handler = move |delivery: Delivery| handle(notes.clone(), delivery);
    let worker = queue.worker().concurrency(10);
    Ok(worker.retry(Retry::fixed(Duration::ZERO)).spawn(handler)?)
}

/// Waits for a worker's first report: history before it is not recorded.
async fn begun(instance: &Instance) -> Result<()> {
    let end = Instant::now() + LIMIT;
    let words = ["HEXISTS", "dueq:{orders}:meta", "history"];
    while !instance.redis.command(&words)?.starts_with(":1") {
        ensure!(Instant::now() < end, "no worker has reported");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// What happened to the messages, in the order in which the page shows it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    pushed: u64,
    delivered: u64,
    acked: u64,
    cancelled: u64,
    retried: u64,
    crashed: u64,
    died: u64,
}

impl Counts {
    fn named(&self) -> [(&'static str, u64); 7] {
        [
            ("pushed", self.pushed),
            ("delivered", self.delivered),
            ("acked", self.acked),
            ("cancelled", self.cancelled),
            ("retried", self.retried),
            ("crashed", self.crashed),
            ("died", self.died),
        ]
    }
}

/// Claims messages like a consumer that crashes: nobody settles them, and their leases expire.
async fn crash(queue: &Queue, truth: &mut Counts) -> Result<()> {
    for number in 0..CRASHED {
        queue
            .push(payload("ack", number))
            .id(format!("crash-{number}"))
            .await?;
    }
    let mut taken = 0;
    while taken < CRASHED {
        let deliveries = queue.claim(8, Duration::from_millis(50)).await?;
        taken += deliveries.len() as u64;
        deliveries.into_iter().for_each(std::mem::forget);
    }
    truth.pushed += CRASHED;
    truth.delivered += 2 * CRASHED;
    truth.crashed += CRASHED;
    truth.acked += CRASHED;
    Ok(())
}

/// Pushes messages that differ in lateness, handler time and end, and cancels others.
async fn push(queue: &Queue, truth: &mut Counts) -> Result<()> {
    for number in 0..HANDLED {
        let what = match number % 21 {
            0..2 => "retry",
            2 => "bury",
            3 => "fail",
            _ => "ack",
        };
        // Latenesses from 0.3 s to 82 minutes, each in the middle of a bucket.
        let due = Due::at_ms(now_us() / 1_000 - (300 << (number % 15)));
        queue
            .push(payload(what, number))
            .id(format!("{number}"))
            .due(due)
            .await?;
        let (attempts, died) = match what {
            "retry" => (2, 0),
            "fail" => (u64::from(MAX_ATTEMPTS), 1),
            "bury" => (1, 1),
            _ => (1, 0),
        };
        truth.pushed += 1;
        truth.delivered += attempts;
        truth.retried += attempts - 1;
        truth.died += died;
        truth.acked += 1 - died;
    }
    for number in 0..CANCELLED {
        let id = format!("cancelled-{number}");
        queue.push("never").id(&*id).delay(HOUR).await?;
        let outcome = queue.cancel(&*id).await?;
        ensure!(outcome == CancelOutcome::Cancelled, "{outcome:?}");
        truth.pushed += 1;
        truth.cancelled += 1;
    }
    Ok(())
}

/// Waits until the history has all events.
async fn reported(queue: &Queue, truth: &Counts, handled: u64) -> Result<()> {
    let end = Instant::now() + LIMIT;
    loop {
        let history = queue.history(HistoryResolution::Days).await?;
        let sum = history.sum(0..u64::MAX).unwrap_or_default();
        let found = Counts {
            pushed: sum.pushed,
            delivered: sum.claimed,
            acked: sum.acked,
            cancelled: sum.cancelled,
            retried: sum.retried,
            crashed: sum.crashed,
            died: sum.died,
        };
        if found == *truth && sum.lateness.count() == handled {
            return Ok(());
        }
        let late = sum.lateness.count();
        ensure!(
            Instant::now() < end,
            "{found:?} with {late} times, not {truth:?} with {handled}"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The text between `begin` and `end`.
fn between<'a>(body: &'a str, begin: &str, end: &str) -> Result<&'a str> {
    let rest = body.split_once(begin).map(|(_, rest)| rest);
    let text = rest.and_then(|rest| rest.split_once(end));
    text.map(|(text, _)| text)
        .with_context(|| format!("{begin} is not in {body}"))
}

/// The shortest and the longest duration that the page would write in this way, in microseconds.
fn times_us(text: &str) -> Result<(u64, u64)> {
    let units = [
        ("µs", 1),
        ("ms", 1_000),
        ("s", 1_000_000),
        ("min", 60_000_000),
        ("h", 3_600_000_000),
    ];
    let (mut sum, mut last) = (0, 0);
    let words: Vec<_> = text.split(' ').collect();
    for pair in words.chunks(2) {
        let [number, name] = pair else {
            anyhow::bail!("{text} is no time")
        };
        let unit = units.iter().find(|(unit, _)| unit == name);
        let (_, unit) = unit.with_context(|| format!("{text}: {name} is no unit"))?;
        let (whole, tenths) = number.split_once('.').unwrap_or((number, "0"));
        sum += whole.parse::<u64>()? * unit + tenths.parse::<u64>()? * unit / 10;
        last = if number.contains('.') {
            unit / 10
        } else {
            *unit
        };
    }
    // The page cuts off digits after the last one, and a smaller unit that is zero.
    Ok((sum, sum + last - 1))
}

/// The upper bound of the bucket that contains a duration.
fn bucket_us(us: u64) -> u64 {
    let ends = (0..BUCKETS).map(|bucket| (1_u128 << (14 + bucket)).isqrt());
    let mut ends = ends.map(|end| u64::try_from(end).unwrap_or(u64::MAX));
    ends.find(|end| us <= *end).unwrap_or(u64::MAX)
}

/// Asserts that a percentile on the page is the upper bound of the right bucket. Each recorded
/// duration is known by a lower and an upper bound.
fn assert_percentile(text: &str, part: f64, recorded: &[(u64, u64)]) -> Result<()> {
    let rank = ((recorded.len() as f64 * part).ceil() as usize).clamp(1, recorded.len());
    let at_rank = |of: fn(&(u64, u64)) -> u64| {
        let mut times: Vec<_> = recorded.iter().map(of).collect();
        times.sort_unstable();
        times[rank - 1]
    };
    let (least, most) = (at_rank(|(least, _)| *least), at_rank(|(_, most)| *most));
    let (shown, shown_end) = times_us(text)?;
    ensure!(
        bucket_us(least) <= shown_end && shown <= bucket_us(most),
        "{part}: {text} is shown, and {least} to {most} µs were recorded"
    );
    Ok(())
}

/// The percentiles in the legend of a chart.
fn assert_percentiles(body: &str, chart: &str, recorded: &[(u64, u64)]) -> Result<()> {
    let legend = between(body, &format!("id=\"{chart}-drawing\""), "</ul>")?;
    for (name, part) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)] {
        let text = between(legend, &format!("</svg>{name} <strong>"), "</strong>")?;
        assert_percentile(text, part, recorded).with_context(|| format!("{chart} {name}"))?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn queue_page_shows_the_numbers_that_the_test_counted() -> Result<()> {
    let instance = Instance::open().await?;
    let url = instance.redis.url();
    let queue = instance.client.queue("orders")?;
    let limits = dueq::QueueLimits::new().max_attempts(MAX_ATTEMPTS);
    queue.configure(limits).await?;
    let (notes, mut truth) = (Notes::default(), Counts::default());
    let first = worker(&url, &notes).await?;
    begun(&instance).await?;
    first.shutdown().await?;

    crash(&queue, &mut truth).await?;
    let workers = [worker(&url, &notes).await?, worker(&url, &notes).await?];
    push(&queue, &mut truth).await?;
    let handled = truth.delivered - CRASHED;
    reported(&queue, &truth, handled).await?;
    let all = notes.all();
    ensure!(all.len() as u64 == handled, "{} of {handled}", all.len());
    let lateness: Vec<_> = all
        .iter()
        .map(|handled| (handled.least_late_us, handled.most_late_us))
        .collect();
    // The node measures the handler time from before the handler until after it.
    let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let handling: Vec<_> = all
        .iter()
        .map(|handled| (us(handled.took), us(handled.begin.elapsed())))
        .collect();

    for range in ["hour", "day", "week", "90d"] {
        let call = format!("GET /queues/orders?range={range}");
        let page = instance.ask(&call, &["Accept: text/html"], "").await?;
        assert_eq!(page.status, 200, "{}", page.body);
        assert_percentiles(&page.body, "lateness-chart", &lateness)?;
        assert_percentiles(&page.body, "handling-chart", &handling)?;
        let figure = between(&page.body, "<dt>p99 lateness</dt>", "</div>")?;
        assert_percentile(between(figure, "<dd>", "</dd>")?, 0.99, &lateness)?;
        let text = format!("{handled} handled in the last hour");
        assert!(figure.contains(&text), "{text}: {figure}");
        let flow = between(&page.body, "<ul class=\"rows\">", "</ul>")?;
        for (name, count) in truth.named() {
            let row = format!("<strong>{name}</strong> <span>{count}</span>");
            assert!(flow.contains(&row), "{range}: {row} is not in {flow}");
        }
        let ended = truth.acked + truth.cancelled + truth.died;
        let share = (truth.cancelled * 1_000) as f64 / ended as f64;
        let share = share.round() / 10.0;
        let sentence = between(&page.body, "id=\"cancelled\"", "<span")?;
        for text in [
            format!("<strong>{share:.1} %</strong> of what ended in"),
            format!(
                "was cancelled before it fired: {} of {ended}.",
                truth.cancelled
            ),
        ] {
            assert!(sentence.contains(&text), "{text} is not in {sentence}");
        }
    }
    for worker in workers {
        worker.shutdown().await?;
    }
    Ok(())
}

#[test]
fn parsed_duration_has_the_bounds_of_its_rounding() -> Result<()> {
    for (text, times) in [
        ("724 µs", (724, 724)),
        ("2.0 ms", (2_000, 2_099)),
        ("11 ms", (11_000, 11_999)),
        ("1.5 s", (1_500_000, 1_599_999)),
        ("3 min 20 s", (200_000_000, 200_999_999)),
        ("1 h 22 min", (4_920_000_000, 4_979_999_999)),
    ] {
        assert_eq!(times_us(text)?, times, "{text}");
    }
    for (us, end) in [(0, 128), (128, 128), (129, 181), (300_000, 370_727)] {
        assert_eq!(bucket_us(us), end, "{us}");
    }
    Ok(())
}
