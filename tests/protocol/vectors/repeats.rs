//! A call whose reply was lost and that the client repeats: the effect of one.

use anyhow::{Result, ensure};

use crate::queue::{HOUR, Queue, T0, token};
use crate::reply::{Text, words};

#[test]
fn a_repeated_push_never_makes_a_second_message() -> Result<()> {
    // Whatever became of the first one meanwhile, until its `until` and from then on.
    type Fate = fn(&mut Queue) -> Result<()>;
    let fates: [(&str, &str, Fate); 6] = [
        ("acked", "FINISHED", |queue| {
            queue.take(T0, 1, &token('a'))?;
            queue.ok("ack", T0, words![token('a'), 1, "a"]).map(drop)
        }),
        ("cancelled", "FINISHED", |queue| queue.ok("cancel", T0, words!["", "a"]).map(drop)),
        ("purged", "FINISHED", |queue| queue.ok("purge", T0, words!["scheduled", 10]).map(drop)),
        ("run now and acked", "FINISHED", |queue| {
            queue.ok("run_now", T0, words!["a"])?;
            queue.take(T0, 1, &token('a'))?;
            queue.ok("ack", T0, words![token('a'), 1, "a"]).map(drop)
        }),
        ("moved near and acked", "FINISHED", |queue| {
            queue.ok("reschedule", T0, words!["a", T0, ""])?;
            queue.take(T0, 1, &token('a'))?;
            queue.ok("ack", T0, words![token('a'), 1, "a"]).map(drop)
        }),
        ("left alone", "EXISTS scheduled", |_| Ok(())),
    ];
    for (fate, answer, make) in fates {
        for due in [T0, T0 + 12_000, T0 + 12_001, T0 + HOUR] {
            let mut queue = Queue::start()?;
            let push = words![T0 + 10_000, "a", due, "payload", ""];
            ensure!(queue.items("push", T0, push.clone())? == ["CREATED"]);
            make(&mut queue)?;
            let there = queue.state()?.messages.len() > 1;
            let answer = if there { "EXISTS scheduled" } else { answer };
            for at in [T0, T0 + 1, T0 + 9_999] {
                ensure!(queue.items("push", at, push.clone())? == [answer], "{fate}, due {due}, at {at}");
            }
            for at in [T0 + 10_000, T0 + 10_001, T0 + HOUR] {
                ensure!(queue.items("push", at, push.clone())? == ["EXPIRED"], "{fate}, due {due}, at {at}");
            }
        }
    }
    Ok(())
}

/// Fresh ids are remembered by their call, whatever became of each of them.
#[test]
fn a_repeated_call_of_fresh_ids_makes_none_of_them_again() -> Result<()> {
    let calls: [(&str, u64, &str, usize); 6] = [
        // due, option of the third, how many are remembered
        ("soon", T0, "", 1),
        ("until", T0 + 10_000, "", 1),
        ("later, but within 12 s", T0 + 10_001, "", 6),
        ("later", T0 + HOUR, "", 0),
        ("judged one by one", T0, "max_attempts=3", 7),
        ("one of them is not created", T0, "max_attempts=0", 6),
    ];
    for (name, due, option, remembered) in calls {
        let mut queue = Queue::start()?;
        let item = |place: usize| words![format!("{place}"), due, "payload", if place == 2 { option } else { "" }];
        let until = format!("{} fresh", T0 + 10_000);
        let push: Vec<Text> = words![&until].into_iter().chain((0..6).flat_map(item)).collect();
        let first = queue.items("push", T0, push.clone())?;
        let refused = option == "max_attempts=0";
        ensure!(first.iter().filter(|answer| *answer == "CREATED").count() == if refused { 5 } else { first.len() });
        ensure!(queue.state()?.recent.len() == remembered + 1, "{name}: {:?}", queue.state()?.recent);
        // Two are cancelled, and two delivered and acked.
        queue.ok("cancel", T0, words!["", "0", "1"])?;
        queue.ok("run_now", T0, words!["4", "5"])?;
        let taken = queue.take(T0, 4, &token('a'))?;
        let both = taken.iter().filter(|id| ["4", "5"].contains(&id.as_str())).map(|id| words![id]).collect::<Vec<_>>();
        ensure!(both.len() == 2, "{name}: {taken:?}");
        queue.ok("ack", T0, [words![token('a'), 2], both.concat()].concat())?;
        for at in [T0, T0 + 9_999] {
            let answers = queue.items("push", at, push.clone())?;
            ensure!([0, 1, 4, 5].iter().all(|place| answers[*place] == "FINISHED"), "{name}, at {at}: {answers:?}");
            ensure!(answers[3].starts_with("EXISTS"), "{name}, at {at}: {answers:?}");
            ensure!(if refused { answers[2].starts_with("INVALID") } else { answers[2].starts_with("EXISTS") });
        }
        let expired = queue.items("push", T0 + 10_000, push)?;
        ensure!(expired.iter().all(|answer| answer == "EXPIRED" || refused && answer.starts_with("INVALID")));
    }
    Ok(())
}

/// Who breaks the promise and pushes some of them in another call makes them again, and harms nothing else.
#[test]
fn fresh_ids_in_another_call_are_pushed_anew() -> Result<()> {
    let mut queue = Queue::start()?;
    let push = |ids: &[&str]| -> Vec<Text> {
        let until = format!("{} fresh", T0 + 10_000);
        words![&until].into_iter().chain(ids.iter().flat_map(|id| words![*id, T0, "", ""])).collect()
    };
    let all = ["a", "b", "c", "d", "e", "f"];
    ensure!(queue.items("push", T0, push(&all))?.iter().all(|answer| answer == "CREATED"));
    ensure!(queue.take(T0, 6, &token('a'))?.len() == 6);
    queue.ok("ack", T0, [words![token('a'), 6], all.iter().flat_map(|id| words![*id]).collect()].concat())?;
    for other in [&all[..5], &all[1..], &["f", "a", "b", "c", "d", "e"], &["a", "b", "c", "d", "x", "f"]] {
        let answers = queue.items("push", T0, push(other))?;
        ensure!(answers.iter().all(|answer| answer == "CREATED"), "{other:?}: {answers:?}");
        queue.ok("purge", T0, words!["scheduled", 10])?;
    }
    ensure!(queue.items("push", T0, push(&all))?.iter().all(|answer| answer == "FINISHED"));
    Ok(())
}

#[test]
fn until_may_be_12_s_ahead_and_not_more() -> Result<()> {
    let mut queue = Queue::start()?;
    let mut push = |until: u64| queue.items("push", T0, words![until, "a", T0, "", ""]);
    ensure!(push(T0 - 1)? == ["EXPIRED"] && push(T0)? == ["EXPIRED"] && push(T0 + 12_001)? == ["EXPIRED"]);
    ensure!(push(T0 + 12_000)? == ["CREATED"]);
    Ok(())
}

#[test]
fn reuse_is_for_cancel_then_push_again_on_purpose() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.push(T0, "a", T0 + HOUR, "first")?;
    ensure!(queue.items("cancel", T0, words!["", "a"])? == ["CANCELLED"]);
    ensure!(queue.push(T0, "a", T0 + HOUR, "second")? == "FINISHED");
    ensure!(queue.items("push", T0, words!["", "a", T0, "second", "reuse"])? == ["CREATED"]);
    ensure!(queue.take(T0, 1, &token('a'))? == ["a"]);
    ensure!(queue.items("ack", T0, words![token('a'), 1, "a"])? == ["OK"]);
    // What remains is that it was here; not that it was cancelled.
    ensure!(queue.items("cancel", T0, words!["", "a"])? == ["ABSENT"]);
    ensure!(queue.push(T0 + 12_000, "a", T0 + HOUR, "third")? == "FINISHED");
    ensure!(queue.push(T0 + 12_001, "a", T0 + HOUR, "third")? == "CREATED");
    Ok(())
}

/// Whatever became of the message that was pushed in between, and whoever cancelled the former one.
#[test]
fn a_repeated_cancel_leaves_alone_what_was_pushed_since() -> Result<()> {
    type Fate = fn(&mut Queue) -> Result<()>;
    let fates: [(&str, Fate); 4] = [
        ("scheduled", |_| Ok(())),
        ("leased", |queue| queue.take(T0 + 100, 1, &token('a')).map(drop)),
        ("acked", |queue| {
            queue.take(T0 + 100, 1, &token('a'))?;
            queue.ok("ack", T0 + 100, words![token('a'), 1, "a"]).map(drop)
        }),
        ("acked and pushed again", |queue| {
            queue.take(T0 + 100, 1, &token('a'))?;
            queue.ok("ack", T0 + 100, words![token('a'), 1, "a"])?;
            queue.ok("push", T0 + 100, words!["", "a", T0 + HOUR, "", "reuse"]).map(drop)
        }),
    ];
    for (fate, make) in fates {
        for dead in ["", "1 "] {
            let mut queue = Queue::start()?;
            queue.push(T0, "a", T0 + HOUR, "")?;
            ensure!(queue.items("cancel", T0 + 50, words!["", "a"])? == ["CANCELLED"]);
            ensure!(queue.items("push", T0 + 60, words!["", "a", T0 + 60, "", "reuse"])? == ["CREATED"]);
            make(&mut queue)?;
            let before = queue.contents()?;
            for (now, since) in [(T0 + 100, T0 + 50), (T0 + 100, T0), (T0 + 12_050, T0 + 50)] {
                let answer = queue.items("cancel", now, words![format!("{dead}since={since}"), "a"])?;
                ensure!(answer == ["CANCELLED earlier"], "{fate}: {answer:?}");
            }
            ensure!(queue.contents()? == before, "{fate}: it changed something");
            // First called after that cancel, it means what was pushed then; and so does one after 12 s.
            let means = match fate {
                "leased" => "LEASED",
                "acked" => "ABSENT",
                _ => "CANCELLED",
            };
            for (now, since) in [(T0 + 100, T0 + 51), (T0 + 12_051, T0 + 50)] {
                let mut queue = Queue::start()?;
                queue.push(T0, "a", T0 + HOUR, "")?;
                queue.ok("cancel", T0 + 50, words!["", "a"])?;
                queue.ok("push", T0 + 60, words!["", "a", T0 + 60, "", "reuse"])?;
                make(&mut queue)?;
                let answer = queue.items("cancel", now, words![format!("{dead}since={since}"), "a"])?;
                ensure!(answer == [means], "{fate}, since {since} at {now}: {answer:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn what_a_cancel_takes_for_a_repetition() -> Result<()> {
    let mut queue = Queue::start()?;
    for word in ["0", "since", "since=", "since=-1", "1since=5x", "2 since=5", "since=5 1", " "] {
        let reply = queue.call("cancel", T0, words![word, "a"])?;
        ensure!(reply.code() == Some("BADARGS"), "{word:?}: {reply:?}");
    }
    for word in ["", "1", "since=5", "1 since=5"] {
        ensure!(queue.items("cancel", T0, words![word, "a"])? == ["ABSENT"], "{word:?}");
    }
    Ok(())
}

#[test]
fn a_cancel_is_recognised_for_12_s() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.push(T0, "a", T0 + HOUR, "")?;
    for (at, answer) in [(0, "CANCELLED"), (1, "CANCELLED"), (12_000, "CANCELLED"), (12_001, "ABSENT")] {
        ensure!(queue.items("cancel", T0 + at, words!["", "a"])? == [answer], "{at} ms later");
    }
    Ok(())
}
