//! Proves that schedules which are due only in hours cost idle nodes no call. Two nodes serve a
//! queue with schedules and one without at the same time, and their calls are compared.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::{Result, ensure};
use dueq::harness::{Observer, Reply};
use dueq::schedules::Schedule;
use dueq::{Applied, Client, Delivery};
use dueq_testkit::Server;
use dueq_testkit::report::{Report, Violations};

use super::Arguments;

const WITH: &str = "with";
const WITHOUT: &str = "without";
const NODES: usize = 2;
/// The most schedules of one apply.
const CHUNK: usize = 1_000;
const HOUR: Duration = Duration::from_secs(3_600);
/// How long the nodes may take to find each other and elect a leader.
const SETTLING: Duration = Duration::from_secs(5);
/// By how many calls the two queues may differ because their timers have other phases; below, the
/// allowed part of all calls.
const SLACK: u64 = 3;
const SLACK_PART: f64 = 0.1;

/// Calls by queue and verb.
type Calls = BTreeMap<(String, &'static str), u64>;

struct Counter(Arc<Mutex<Calls>>);

impl Observer for Counter {
    fn invoke(&self, _: u64, verb: &'static str, queue: &str, _: &[&[u8]]) {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *calls.entry((queue.to_owned(), verb)).or_default() += 1;
    }

    fn done(&self, _: u64, _: Result<&Reply, (String, Applied)>) {}
}

pub(super) async fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    let counted: Arc<Mutex<Calls>> = Arc::default();
    ensure!(
        dueq::harness::observe(Counter(Arc::clone(&counted))),
        "this process has an observer already"
    );
    let server = Server::start(&[])?;
    let client = Client::connect(&server.url()).await?;
    let queue = client.queue(WITH)?;
    let (mut declared, mut set) = (0, 0);
    while declared < arguments.schedules {
        let end = arguments.schedules.min(declared + CHUNK);
        let first = SystemTime::now() + 2 * HOUR;
        let schedule = |number| {
            let name = format!("s{number}");
            Schedule::every(5 * HOUR).name(name).anchor(first)
        };
        let schedules = (declared..end).map(schedule);
        queue
            .schedules(format!("set-{set}"))
            .apply(schedules)
            .await?;
        (declared, set) = (end, set + 1);
    }
    let mut workers = Vec::new();
    for _ in 0..NODES {
        let client = Client::connect(&server.url()).await?;
        for queue in [WITH, WITHOUT] {
            workers.push(
                client
                    .queue(queue)?
                    .worker()
                    .spawn(|_: Delivery| async {})?,
            );
        }
    }
    tokio::time::sleep(SETTLING).await;
    let take = || std::mem::take(&mut *counted.lock().unwrap_or_else(PoisonError::into_inner));
    take();
    tokio::time::sleep(Duration::from_secs_f64(arguments.idle_seconds)).await;
    let calls = take();
    for worker in workers {
        worker.shutdown().await?;
    }
    report.violations(&judge(&calls));
    report.figure("schedules", declared);
    report.figure("calls with schedules", text(&calls, WITH));
    report.figure("calls without schedules", text(&calls, WITHOUT));
    Ok(())
}

fn of_queue<'a>(calls: &'a Calls, name: &'a str) -> impl Iterator<Item = (&'static str, u64)> + 'a {
    let of_queue = calls.iter().filter(move |((queue, _), _)| queue == name);
    of_queue.map(|((_, verb), count)| (*verb, *count))
}

fn text(calls: &Calls, queue: &str) -> String {
    let each = of_queue(calls, queue).map(|(verb, count)| format!("{verb} {count}"));
    each.collect::<Vec<_>>().join(", ")
}

fn judge(calls: &Calls) -> Violations {
    let mut violations = Violations::default();
    let without: BTreeMap<_, _> = of_queue(calls, WITHOUT).collect();
    if without.is_empty() {
        violations.add("the nodes made no call, so they were not idle but dead".to_owned());
    }
    for (verb, count) in of_queue(calls, WITH) {
        let other = without.get(verb).copied().unwrap_or(0);
        let most = other + SLACK + (other as f64 * SLACK_PART) as u64;
        if count > most {
            violations.add(format!(
                "{count} calls of {verb}, {other} without schedules"
            ));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(with: u64, without: u64) -> Calls {
        let entry = |queue: &str, count| ((queue.to_owned(), "beat"), count);
        [entry(WITH, with), entry(WITHOUT, without)].into()
    }

    #[test]
    fn calls_for_schedules_are_found() {
        assert_eq!(judge(&calls(33, 30)).summary(), None);
        assert_eq!(
            judge(&calls(60, 30)).texts(),
            ["60 calls of beat, 30 without schedules"]
        );
        let mut polls = calls(30, 30);
        polls.insert((WITH.to_owned(), "schedules"), 30);
        assert!(judge(&polls).summary().is_some());
        assert!(judge(&Calls::new()).summary().is_some());
    }
}
