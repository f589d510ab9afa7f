//! Four services apply revisions of one set at the same time, and each of them a set of its own. What
//! is left is the newest revision, exactly; an older one is refused.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use dueq::{Client, Queue, Schedule};
use dueq_testkit::Server;
use dueq_testkit::report::{Report, Violations};

const QUEUE: &str = "applies";
const SERVICES: u64 = 4;
const APPLIES: u64 = 100;
const SHARED: &str = "shared";

/// The spec of each schedule by its name, such as `set=a every=10000`.
type Stored = BTreeMap<String, String>;

#[derive(Default)]
struct Done {
    applied: u64,
    stale: u64,
    failed: Vec<String>,
}

pub(super) async fn run(report: &mut Report) -> Result<()> {
    let server = Server::start(&[])?;
    let mut services = tokio::task::JoinSet::new();
    for service in 0..SERVICES {
        let url = server.url();
        services.spawn(async move { apply_all(&url, service).await });
    }
    let mut done = Done::default();
    while let Some(service) = services.join_next().await {
        let service = service??;
        done.applied += service.applied;
        done.stale += service.stale;
        done.failed.extend(service.failed);
    }
    let queue = Client::connect(&server.url()).await?.queue(QUEUE)?;
    let mut expected = expected_of(SHARED, SERVICES * APPLIES);
    for service in 0..SERVICES {
        expected.extend(expected_of(&own_set(service), APPLIES));
    }
    let mut violations = judge(&stored(&queue).await?, &expected);
    for failed in &done.failed {
        violations.add(failed.clone());
    }
    let late = queue.schedules(SHARED).revision(1).prune(true);
    match late.apply(content(SHARED, 1)).await {
        Err(error) if error.code() == Some("STALE") => {}
        other => violations.add(format!("an older revision at the end: {other:?}")),
    }
    if stored(&queue).await? != expected {
        violations.add("the refused apply changed the schedules".to_owned());
    }
    report.violations(&violations);
    report.figure("applies", done.applied);
    report.figure("refused as stale", done.stale);
    report.figure("schedules left", expected.len());
    Ok(())
}

fn own_set(service: u64) -> String {
    format!("own-{service}")
}

/// Applies its share of the revisions of the shared set, and one of its own set after each.
async fn apply_all(url: &str, service: u64) -> Result<Done> {
    let queue = Client::connect(url).await?.queue(QUEUE)?;
    let mut done = Done::default();
    for round in 0..APPLIES {
        let own = own_set(service);
        for (set, revision) in [(SHARED, round * SERVICES + service + 1), (&own, round + 1)] {
            let declared = queue.schedules(set).revision(revision).prune(true);
            match declared.apply(content(set, revision)).await {
                Ok(_) => done.applied += 1,
                Err(error) if error.code() == Some("STALE") => {
                    done.stale += 1;
                    // No other task applies this task's own set or the newest revision.
                    if set != SHARED || revision == SERVICES * APPLIES {
                        let failed = format!("revision {revision} of {set} is refused: {error}");
                        done.failed.push(failed);
                    }
                }
                Err(error) => done
                    .failed
                    .push(format!("revision {revision} of {set}: {error}")),
            }
        }
    }
    Ok(done)
}

/// Three schedules that all revisions have, and two of this one.
fn content(set: &str, revision: u64) -> Vec<Schedule> {
    declared(set, revision)
        .into_iter()
        .map(|(name, seconds)| Schedule::every(Duration::from_secs(seconds)).name(name))
        .collect()
}

fn declared(set: &str, revision: u64) -> Vec<(String, u64)> {
    let common = (0..3).map(|number| (format!("{set}/{number}"), 10_000 + revision * (number % 2)));
    let own = (0..2).map(|number| (format!("{set}/{revision}-{number}"), 20_000 + revision));
    common.chain(own).collect()
}

fn expected_of(set: &str, revision: u64) -> Stored {
    declared(set, revision)
        .into_iter()
        .map(|(name, seconds)| (name, format!("set={set} every={}", seconds * 1_000)))
        .collect()
}

async fn stored(queue: &Queue) -> Result<Stored> {
    let mut stored = Stored::new();
    let mut cursor = None;
    loop {
        let page = queue.list_schedules(cursor.as_ref(), 1_000).await?;
        for schedule in page.schedules {
            let words: Vec<_> = schedule.spec.split(' ').collect();
            let words = words
                .iter()
                .filter(|word| word.starts_with("set=") || word.starts_with("every="));
            let words: Vec<_> = words.copied().collect();
            let twice = stored.insert(schedule.name.clone(), words.join(" "));
            ensure!(twice.is_none(), "{} is listed twice", schedule.name);
        }
        cursor = page.next;
        if cursor.is_none() {
            return Ok(stored);
        }
    }
}

fn judge(stored: &Stored, expected: &Stored) -> Violations {
    let mut violations = Violations::default();
    for (name, spec) in expected {
        match stored.get(name) {
            Some(found) if found == spec => {}
            Some(found) => violations.add(format!("{name} is {found:?}, declared is {spec:?}")),
            None => violations.add(format!("{name} is missing")),
        }
    }
    for name in stored.keys().filter(|name| !expected.contains_key(*name)) {
        violations.add(format!("{name} is left, and not declared"));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_revisions_content_is_found() {
        let newest = expected_of(SHARED, 400);
        assert_eq!(judge(&newest, &newest).summary(), None);
        let found = judge(&expected_of(SHARED, 399), &newest);
        let texts = found.texts().join("; ");
        assert!(
            texts.contains("shared/1 is \"set=shared every=10399000\""),
            "{texts}"
        );
        assert!(texts.contains("shared/400-0 is missing"), "{texts}");
        assert!(texts.contains("shared/399-1 is left"), "{texts}");
        assert!(!texts.contains("shared/0 "), "{texts}");
    }
}
