//! Repetitions of a cancel, and pushes of a cancelled id.

use anyhow::{Result, ensure};

use crate::queue::{HOUR, Queue, T0, token};
use crate::reply::words;

#[test]
fn a_cancel_after_the_newer_message_ended_returns_absent() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.push(T0, "a", T0 + HOUR, "first")?;
    ensure!(queue.items("cancel", T0, words!["", "a", "a"])? == ["CANCELLED", "CANCELLED"]);
    ensure!(queue.push(T0, "a", T0, "second")? == "CREATED");
    ensure!(queue.take(T0, 1, &token('a'))? == ["a"]);
    ensure!(queue.items("ack", T0, words![token('a'), 1, "a"])? == ["OK"]);
    ensure!(queue.items("cancel", T0, words!["", "a"])? == ["ABSENT"]);
    Ok(())
}

/// This holds whatever happened to the newer message, and for every caller of the first cancel.
#[test]
fn a_repeated_cancel_spares_a_newer_message() -> Result<()> {
    type Fate = fn(&mut Queue) -> Result<()>;
    let fates: [(&str, Fate); 4] = [
        ("scheduled", |_| Ok(())),
        ("leased", |queue| {
            queue.take(T0 + 100, 1, &token('a')).map(drop)
        }),
        ("acked", |queue| {
            queue.take(T0 + 100, 1, &token('a'))?;
            queue
                .ok("ack", T0 + 100, words![token('a'), 1, "a"])
                .map(drop)
        }),
        ("acked and pushed again", |queue| {
            queue.take(T0 + 100, 1, &token('a'))?;
            queue.ok("ack", T0 + 100, words![token('a'), 1, "a"])?;
            queue
                .ok("push", T0 + 100, words!["", "a", T0 + HOUR, "", ""])
                .map(drop)
        }),
    ];
    for (fate, make) in fates {
        for dead in ["", "1 "] {
            let mut queue = Queue::start()?;
            queue.push(T0, "a", T0 + HOUR, "")?;
            ensure!(queue.items("cancel", T0 + 50, words!["", "a"])? == ["CANCELLED"]);
            ensure!(queue.items("push", T0 + 60, words!["", "a", T0 + 60, "", ""])? == ["CREATED"]);
            make(&mut queue)?;
            let before = queue.contents()?;
            for (now, since) in [(T0 + 100, T0 + 50), (T0 + 100, T0), (T0 + 12_050, T0 + 50)] {
                let answer =
                    queue.items("cancel", now, words![format!("{dead}since={since}"), "a"])?;
                ensure!(answer == ["CANCELLED earlier"], "{fate}: {answer:?}");
            }
            ensure!(
                queue.contents()? == before,
                "{fate}: the repetition changed a key"
            );
            // A cancel whose first try came after the earlier cancel means the newer message. So
            // does one after 12 s.
            let means = match fate {
                "leased" => "LEASED",
                "acked" => "ABSENT",
                _ => "CANCELLED",
            };
            for (now, since) in [(T0 + 100, T0 + 51), (T0 + 12_051, T0 + 50)] {
                let mut queue = Queue::start()?;
                queue.push(T0, "a", T0 + HOUR, "")?;
                queue.ok("cancel", T0 + 50, words!["", "a"])?;
                queue.ok("push", T0 + 60, words!["", "a", T0 + 60, "", ""])?;
                make(&mut queue)?;
                let answer =
                    queue.items("cancel", now, words![format!("{dead}since={since}"), "a"])?;
                ensure!(
                    answer == [means],
                    "{fate}, since {since} at {now}: {answer:?}"
                );
            }
        }
    }
    Ok(())
}

#[test]
fn cancel_refuses_malformed_options() -> Result<()> {
    let mut queue = Queue::start()?;
    for word in [
        "0",
        "since",
        "since=",
        "since=-1",
        "1since=5x",
        "2 since=5",
        "since=5 1",
        " ",
    ] {
        let reply = queue.call("cancel", T0, words![word, "a"])?;
        ensure!(reply.code() == Some("BADARGS"), "{word:?}: {reply:?}");
    }
    for word in ["", "1", "since=5", "1 since=5"] {
        ensure!(
            queue.items("cancel", T0, words![word, "a"])? == ["ABSENT"],
            "{word:?}"
        );
    }
    Ok(())
}

#[test]
fn a_cancel_is_recognised_for_12_s_after_the_last() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.push(T0, "a", T0 + HOUR, "")?;
    for (at, answer) in [
        (0, "CANCELLED"),
        (12_000, "CANCELLED"),
        (24_000, "CANCELLED"),
        (36_002, "ABSENT"),
    ] {
        ensure!(
            queue.items("cancel", T0 + at, words!["", "a"])? == [answer],
            "{at} ms later"
        );
    }
    Ok(())
}

/// The score of a cancel is rounded up to half a ms above the whole ms, so it is found even if the
/// clock goes back a little.
#[test]
fn a_cancel_is_recognised_after_the_clock_went_back_1_ms() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.push(T0, "a", T0 + HOUR, "")?;
    ensure!(queue.items("cancel", T0, words!["", "a"])? == ["CANCELLED"]);
    for (at, answer, known) in [(T0 - 1, "CANCELLED", 5), (T0 - 2, "ABSENT", 2)] {
        ensure!(queue.items("cancel", at, words!["", "a"])? == [answer]);
        let told = queue.ok("get", at, words!["a"])?;
        ensure!(told.list()?.len() == known, "{told:?}");
    }
    Ok(())
}

#[test]
fn a_cancel_is_recognised_in_every_state() -> Result<()> {
    let mut queue = crate::vectors::with_every_state()?;
    for id in ["s", "r", "d"] {
        ensure!(
            queue.items("cancel", T0, words!["1", id])? == ["CANCELLED"],
            "{id}"
        );
        ensure!(
            queue.items("cancel", T0 + 1, words!["1", id])? == ["CANCELLED"],
            "{id}, the reply was lost"
        );
    }
    Ok(())
}

/// Each case is something that happens to the id after the cancel whose time the undo names.
#[test]
fn undo_stores_only_if_nothing_happened_to_the_id_since() -> Result<()> {
    type Since = fn(&mut Queue) -> Result<()>;
    let cancel = |queue: &mut Queue, now: u64| queue.items("cancel", now, words!["", "a"]);
    let nothing: Since = |_| Ok(());
    let again: Since = |queue| {
        ensure!(queue.push(T0 + 20, "a", T0 + 20, "newer")? == "CREATED");
        Ok(())
    };
    let handled: Since = |queue| {
        queue.push(T0 + 20, "a", T0 + 20, "newer")?;
        queue.take(T0 + 20, 1, &token('a'))?;
        queue
            .ok("ack", T0 + 20, words![token('a'), 1, "a"])
            .map(drop)
    };
    let cancelled_again: Since = |queue| {
        queue.push(T0 + 20, "a", T0 + HOUR, "newer")?;
        queue.ok("cancel", T0 + 21, words!["", "a"]).map(drop)
    };
    let by_another: Since = |queue| queue.ok("cancel", T0 + 20, words!["", "a"]).map(drop);
    let in_its_ms: Since = |queue| queue.ok("cancel", T0 + 10, words!["", "a"]).map(drop);
    let purged: Since = |queue| {
        queue.push(T0 + 20, "a", T0 + HOUR, "newer")?;
        queue
            .ok("purge", T0 + 21, words!["scheduled", 10])
            .map(drop)
    };
    let mut queue = Queue::start()?;
    queue.push(T0, "a", T0 + HOUR, "first")?;
    ensure!(queue.items("cancel", T0 + 10, words!["", "a", "a"])? == ["CANCELLED", "CANCELLED"]);
    let undo = words!["", "a", T0 + HOUR, "first", format!("undo={}", T0 + 10)];
    ensure!(
        queue.items("push", T0 + 11, undo)? == ["USED"],
        "two callers, one call"
    );
    // A caller that cancels what another caller has cancelled gets no time for an undo.
    let mut queue = Queue::start()?;
    queue.push(T0, "a", T0 + HOUR, "first")?;
    for at in [T0 + 10, T0 + 20] {
        ensure!(queue.items("cancel", at, words!["", "a"])? == ["CANCELLED"]);
    }
    let undo = words!["", "a", T0 + HOUR, "first", format!("undo={}", T0 + 20)];
    ensure!(
        queue.items("push", T0 + 21, undo)? == ["USED"],
        "not its own"
    );
    // A repetition of the first cancel is the same cancel, and can be undone.
    let mut queue = Queue::start()?;
    queue.push(T0, "a", T0 + HOUR, "first")?;
    for dead in ["".to_owned(), format!("since={}", T0 + 5)] {
        ensure!(queue.items("cancel", T0 + 10, words![dead, "a"])? == ["CANCELLED"]);
    }
    let undo = words!["", "a", T0 + HOUR, "first", format!("undo={}", T0 + 10)];
    ensure!(
        queue.items("push", T0 + 11, undo)? == ["CREATED"],
        "repeated"
    );
    for (what, since, at, expected) in [
        ("nothing", nothing, T0 + 100, "CREATED"),
        ("nothing, until the end", nothing, T0 + 12_010, "CREATED"),
        ("too late", nothing, T0 + 12_011, "USED"),
        ("pushed again", again, T0 + 100, "EXISTS scheduled"),
        ("handled", handled, T0 + 100, "USED"),
        ("pushed and cancelled", cancelled_again, T0 + 100, "USED"),
        ("cancelled by another caller", by_another, T0 + 100, "USED"),
        (
            "cancelled by another in its ms",
            in_its_ms,
            T0 + 100,
            "USED",
        ),
        ("pushed and purged", purged, T0 + 100, "USED"),
    ] {
        let mut queue = Queue::start()?;
        queue.push(T0, "a", T0 + HOUR, "first")?;
        ensure!(cancel(&mut queue, T0 + 10)? == ["CANCELLED"]);
        since(&mut queue)?;
        let undo = format!("undo={}", T0 + 10);
        let answer = queue.items("push", at, words!["", "a", T0 + HOUR, "first", &undo])?;
        ensure!(answer == [expected], "{what}: {answer:?}");
        if expected == "CREATED" {
            // A second undo finds the message. After another cancel, it names an outdated time.
            let answer = queue.items("push", at, words!["", "a", T0 + HOUR, "first", &undo])?;
            ensure!(answer == ["EXISTS scheduled"], "{what}: {answer:?}");
            ensure!(cancel(&mut queue, at + 1)? == ["CANCELLED"]);
            let answer = queue.items("push", at + 2, words!["", "a", T0 + HOUR, "first", &undo])?;
            ensure!(answer == ["USED"], "{what}: {answer:?}");
        }
    }
    Ok(())
}
