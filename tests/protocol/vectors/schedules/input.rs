//! Invalid input of the verbs of schedules: it is refused, and nothing is written.

use anyhow::{Result, ensure};

use crate::queue::{HOUR, Queue, T0};
use crate::reply::{Text, words};
use crate::vectors::schedules::declared::{apply, cron, declare, every, listed};

/// A queue with one schedule, so that any trace of a refused call is noticed.
fn queue() -> Result<Queue> {
    let mut queue = Queue::start()?;
    declare(&mut queue, T0, &[every("old", "every=1000")])?;
    Ok(queue)
}

fn refused(queue: &mut Queue, schedule: Vec<Text>, why: &str) -> Result<()> {
    let before = queue.contents()?;
    let what = format!("{schedule:?}");
    let (word, replies, removed) = apply(queue, T0, ["some", "9", "prune now"], &[schedule])?;
    ensure!(
        word == "INVALID"
            && removed.is_empty()
            && replies[0].starts_with(&format!("INVALID {why}")),
        "{what}: {word}, {replies:?}"
    );
    ensure!(queue.contents()? == before, "{what} left a trace");
    Ok(())
}

#[test]
fn invalid_numbers_of_a_spec_are_refused_with_their_range() -> Result<()> {
    let mut queue = queue()?;
    let ranges = [
        ("every", 10, 3_155_760_000_000_u64),
        ("anchor", 0, 9_007_199_254_740_991),
        ("within", 1, 3_155_760_000_000),
        ("max", 1, 100_000),
        ("jitter", 1, 3_155_760_000_000),
        ("start", 0, 9_007_199_254_740_991),
        ("end", 0, 9_007_199_254_740_991),
        ("limit", 1, 1_000_000_000_000_000),
    ];
    for (name, least, most) in ranges {
        let mut bad = vec![
            "x".into(),
            "-1".into(),
            "1.5".into(),
            "1e3".into(),
            "+1".into(),
            "nan".into(),
            "9".repeat(17),
            (most + 1).to_string(),
        ];
        if least > 0 {
            bad.push((least - 1).to_string());
        }
        for value in bad {
            let more = if name == "every" { "" } else { "every=1000 " };
            let spec = format!("{more}{name}={value}");
            refused(
                &mut queue,
                every("s", &spec),
                &format!("{name} must be {least} to {most}"),
            )?;
        }
    }
    Ok(())
}

#[test]
fn invalid_words_of_a_spec_are_refused_with_a_reason() -> Result<()> {
    let mut queue = queue()?;
    let cases = [
        ("", "give either every, or zone"),
        ("missed=one", "give either every, or zone"),
        ("every=1000 zone=UTC", "give either every, or zone"),
        ("every=1000 every=1000", "every is given twice"),
        ("every=1000 set=other", "set is given twice"),
        ("every=1000 missed=two", "missed must be one, skip or all"),
        (
            "every=1000 overlap=no",
            "overlap must be allow, skip or replace",
        ),
        ("every=1000 overlap=wait", "overlap=wait is not there yet"),
        ("every=1000 jitter=1000", "jitter must be below every"),
        ("every=1000 start=2 end=1", "end must not be before start"),
        ("every=1000 max=5", "max needs missed=all"),
        ("every=1000 other=5", "spec: words of every=MS"),
        ("every=1000 within=", "spec: words of every=MS"),
        ("every", "spec: words of every=MS"),
        ("every=1000\n", "every must be"),
    ];
    for (spec, why) in cases {
        refused(&mut queue, every("s", spec), why)?;
    }
    for zone in ["Europe Paris", "a\nb", "ä", &"x".repeat(65)] {
        let spec = format!("zone={zone}");
        let cron = words!["s", spec, "* * * * *", "", listed("1", 0, &[T0 + 1]), ""];
        let why = if zone.contains(' ') {
            "spec"
        } else {
            "zone must be"
        };
        refused(&mut queue, cron, why)?;
    }
    Ok(())
}

#[test]
fn invalid_names_patterns_options_payloads_are_refused() -> Result<()> {
    let mut queue = queue()?;
    let long = "n".repeat(101);
    for name in [
        "", " ", "a b", "a@1", "a\n", "a\0", "ä", "\u{4}a", "a\u{7f}", &long,
    ] {
        refused(
            &mut queue,
            every(name, "every=1000"),
            "name must be 1 to 100",
        )?;
    }
    for pattern in ["", "a\nb", "a\0", &"x".repeat(257)] {
        let cron = words!["s", "zone=UTC", pattern, "", listed("1", 0, &[T0 + 1]), ""];
        refused(&mut queue, cron, "pattern must have 1 to 256 bytes")?;
    }
    let listed_every = words!["s", "every=1000", "", "", listed("1", 0, &[T0 + 1]), ""];
    refused(&mut queue, listed_every, "give either every")?;
    for options in [
        "cost=2",
        "window=5",
        "reuse",
        "on_conflict=next",
        "expires=1800000000000",
        "max_attempts=0",
        "on_expire=drop",
        "tick",
    ] {
        let schedule = words!["s", "every=1000", "", options, "", ""];
        refused(&mut queue, schedule, "")?;
    }
    let large = words!["s", "every=1000", "", "", "", "x".repeat(1_048_577)];
    refused(&mut queue, large, "payload has 1048577 bytes, the limit")?;
    let twice = [every("s", "every=1000"), every("s", "every=2000")];
    let (word, replies, _) = apply(&mut queue, T0, ["some", "", ""], &twice)?;
    ensure!(word == "INVALID" && replies[1] == "INVALID this call declares s twice");
    let (word, replies, _) = apply(&mut queue, T0, ["x", "", ""], &[every("old", "every=9000")])?;
    ensure!(word == "INVALID" && replies == ["INVALID old belongs to the set some"]);
    Ok(())
}

#[test]
fn lists_of_fires_are_refused_unless_they_ascend() -> Result<()> {
    let mut queue = queue()?;
    let many: Vec<u64> = (1..=513).map(|at| T0 + at).collect();
    let lists = [
        String::new(),
        "2026a 0".into(),
        "2026a\n1".into(),
        "2026a 2\n1".into(),
        " 0\n1".into(),
        format!("{} 0\n1", "v".repeat(33)),
        "2026a 0\n5 5".into(),
        "2026a 0\n6 5".into(),
        "2026a 0\n1.5".into(),
        "2026a 0\n-5".into(),
        format!("2026a 0\n{}", "9".repeat(16)),
        listed("2026a", 0, &many),
    ];
    for list in lists {
        let cron = words!["s", "zone=UTC", "* * * * *", "", &list, ""];
        refused(&mut queue, cron, "fires must be")?;
    }
    for past in [vec![], vec![T0 - 1, T0]] {
        refused(
            &mut queue,
            cron("s", "", &past),
            "fires must have a time that is ahead",
        )?;
    }
    Ok(())
}

#[test]
fn calls_of_the_wrong_form_are_badargs_and_write_nothing() -> Result<()> {
    let mut queue = queue()?;
    let (long, two_53) = ("x".repeat(101), "9007199254740994");
    let many = |count| vec![Text::from("n"); count];
    let calls = [
        ("schedule", words![]),
        ("schedule", words!["", "", ""]),
        ("schedule", words![&long, "", ""]),
        ("schedule", words!["a b", "", ""]),
        ("schedule", words!["x", "-1", ""]),
        ("schedule", words!["x", "seven", ""]),
        ("schedule", words!["x", two_53, ""]),
        ("schedule", words!["x", "", "prune prune"]),
        ("schedule", words!["x", "", "other"]),
        ("schedule", words!["x", "", "", "s"]),
        ("schedule", [words!["x", "", ""], many(6_006)].concat()),
        ("schedules", words![]),
        ("schedules", words!["", 0, ""]),
        ("schedules", words!["", 1_001, ""]),
        ("schedules", words!["", 10, "high"]),
        ("amend", words!["pause"]),
        ("amend", words!["stop", "s"]),
        ("amend", [words!["pause"], many(1_001)].concat()),
        ("trigger", words!["s"]),
        ("trigger", words!["s", "now", "now"]),
        ("trigger", [words!["s"], many(101)].concat()),
        ("refill", words![]),
        ("refill", words!["s", "1", "1"]),
        ("refill", many(404)),
    ];
    let before = queue.contents()?;
    for (verb, words) in calls {
        let reply = queue.call(verb, T0, words.clone())?;
        ensure!(
            reply.code() == Some("BADARGS"),
            "{verb} {words:?}: {reply:?}"
        );
        ensure!(queue.contents()? == before, "{verb} left a trace");
    }
    Ok(())
}

#[test]
fn names_with_unusual_bytes_find_no_schedule() -> Result<()> {
    let mut queue = queue()?;
    let before = queue.contents()?;
    for name in [
        "", "a b", "old\n", "\u{4}old", "\0", "s:old", "ä", "%w", ":some",
    ] {
        let amended = queue.items("amend", T0, words!["remove", name])?;
        let refilled = queue.items("refill", T0, words![name, "1", "1", "1 0\n1"])?;
        let triggered = queue.ok("trigger", T0, words![name, "now"])?;
        ensure!(amended == ["GONE"] && refilled == ["GONE"], "{name:?}");
        ensure!(triggered.part(1)?.text()? == "GONE", "{name:?}");
        ensure!(
            queue
                .ok("schedules", T0, words![name])?
                .part(2)?
                .list()?
                .is_empty()
        );
    }
    let odd = "A.b_c-d:e/f";
    ensure!(queue.contents()? == before);
    declare(&mut queue, T0, &[every(odd, "every=3600000")])?;
    let ids = crate::vectors::schedules::declared::ticks(&mut queue, T0 + HOUR)?;
    ensure!(
        ids.iter().any(|id| id.starts_with("A.b_c-d:e/f@")),
        "{ids:?}"
    );
    Ok(())
}
