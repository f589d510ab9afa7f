//! How much one call about schedules does at most, and that the next call continues the work.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

use crate::queue::{DAY, Queue, SECOND, T0, token};
use crate::reply::{Reply, Text, words};
use crate::vectors::schedules::declared::{
    apply, check, claim, cron, declare, every, listed, refill, show, tick, ticks, with,
};

const MINUTE: u64 = 60 * SECOND;
const JITTER: u64 = 36_000 * DAY;

/// Declares this many schedules of a set, in calls that are as large as allowed.
pub(crate) fn declare_many(queue: &mut Queue, set: &str, schedules: &[Vec<Text>]) -> Result<()> {
    for some in schedules.chunks(24) {
        let words = [words![set, "", ""], some.concat()].concat();
        let reply = queue.ok("schedule", T0, words)?;
        ensure!(reply.part(1)?.text()? == "OK", "{reply:?}");
    }
    Ok(())
}

fn names(count: u64) -> Vec<String> {
    (0..count).map(|at| format!("s{at:03}")).collect()
}

/// A queue with this many schedules that each fire every second.
fn with_many(count: u64) -> Result<Queue> {
    let mut queue = Queue::start()?;
    let schedules: Vec<_> = names(count)
        .iter()
        .map(|name| every(name, "every=1000"))
        .collect();
    declare_many(&mut queue, "some", &schedules)?;
    Ok(queue)
}

/// The 65th timer is left, so 65 candidates stay: 64 timers, and a message that is none.
#[test]
fn a_message_among_65_due_timers_keeps_its_options() -> Result<()> {
    let mut queue = with_many(65)?;
    let push = words!["", "first", T0 + 500, "payload", "max_attempts=3"];
    queue.ok("push", T0, push)?;
    let claim = words![100, crate::queue::token('t'), SECOND];
    let reply = queue.ok("claim", T0 + SECOND, claim)?;
    let deliveries = reply.deliveries()?;
    ensure!(deliveries.len() == 65, "{}", deliveries.len());
    ensure!(deliveries[0][4] == "max_attempts=3".into(), "{reply:?}");
    Ok(())
}

#[test]
fn a_claim_handles_64_timers_and_the_next_claim_continues() -> Result<()> {
    for promoted in [false, true] {
        let mut queue = with_many(150)?;
        let now = T0 + SECOND;
        queue.push(T0, "behind", now, "payload")?;
        if promoted {
            queue.ok("promote", now, words![1_000])?;
        }
        let mut seen = BTreeSet::new();
        for granted in [64, 64, 23] {
            queue.command(words!["DEL", "dueq:{q}:wake"])?;
            let (ids, _) = claim(&mut queue, now, 1_000)?;
            ensure!(ids.len() == granted, "{promoted}: {}", ids.len());
            seen.extend(ids);
            let tokens = queue.command(words!["LLEN", "dueq:{q}:wake"])?.int()?;
            ensure!((tokens == 2) == (granted == 64), "{promoted}: {tokens}");
        }
        ensure!(seen.len() == 151, "each timer made its tick once");
    }
    Ok(())
}

/// A cron whose list has 512 fires, one per minute.
fn minutely(name: &str, spec: &str) -> Vec<Text> {
    let fires: Vec<u64> = (1..=512).map(|at| T0 + at * MINUTE).collect();
    cron(name, spec, &fires)
}

#[test]
fn a_claim_computes_the_jitter_of_at_most_1000_fires() -> Result<()> {
    let mut queue = Queue::start()?;
    // Nearly all fires are due, but whether they are depends on their jitter.
    let crons: Vec<_> = names(6)
        .iter()
        .map(|name| minutely(name, &format!("jitter={JITTER}")))
        .collect();
    for some in crons.chunks(2) {
        declare_many(&mut queue, "some", some)?;
    }
    let now = T0 + JITTER;
    for granted in [2, 2, 2, 0] {
        ensure!(claim(&mut queue, now, 1_000)?.0.len() == granted);
    }
    Ok(())
}

#[test]
fn fires_are_found_in_lists_of_numbers_of_any_length() -> Result<()> {
    let fires = [7, 42, 999_999_999_999, 1_000_000_000_000, T0 + 1, T0 + 9];
    for (missed, made) in [("one", 4), ("all", 0)] {
        let mut queue = Queue::start()?;
        let start = words![
            "s",
            format!("zone=UTC missed={missed} within=3000000000000"),
            "0 2 * * *",
            "",
            listed("2026a", 1, &fires),
            "payload"
        ];
        let reply = queue.ok("schedule", 1, [words!["some", "", ""], start].concat())?;
        ensure!(reply.part(1)?.text()? == "OK");
        ensure!(show(&mut queue, "s")?.listed == 6);
        let (ids, _) = claim(&mut queue, T0 + 1, 1)?;
        ensure!(ids == [tick(fires[made])], "{missed}: {ids:?}");
        let shown = show(&mut queue, "s")?;
        ensure!(shown.next == fires[made + 1] && shown.listed == 5 - made as u64);
    }
    Ok(())
}

#[test]
fn apply_of_a_stored_schedule_ignores_its_fire_list() -> Result<()> {
    let mut queue = Queue::start()?;
    let [name, spec, pattern, options, _, payload] = minutely("s", "missed=all overlap=skip")
        .try_into()
        .expect("6");
    let with =
        |fires: &str| [&name, &spec, &pattern, &options, &fires.into(), &payload].map(Clone::clone);
    declare(&mut queue, T0, &[with("2026a 1\n1700000060000").to_vec()])?;
    let before = queue.contents()?;
    let replies = declare(&mut queue, T0, &[with("no list").to_vec()])?;
    ensure!(replies == ["KEPT 1700000060000"], "{replies:?}");
    let after = queue.contents()?;
    ensure!(after.len() == before.len() && show(&mut queue, "s")?.listed == 1);
    let mut other = with("2026a 1\n1700000060000").to_vec();
    other[5] = "other payload".into();
    ensure!(declare(&mut queue, T0, &[other])? == ["CHANGED 1700000060000"]);
    Ok(())
}

#[test]
fn a_page_examines_64_schedules_per_call() -> Result<()> {
    let mut queue = with_many(150)?;
    let (mut cursor, mut seen) = (Text::default(), Vec::new());
    for length in [64, 64, 22] {
        let page = queue.ok("schedules", T0, words![&cursor, 1_000, ""])?;
        let items = page.part(2)?.list()?;
        ensure!(items.len() == length, "{}", items.len());
        for item in items {
            seen.push(item.part(0)?.text()?);
        }
        cursor = page.part(1)?.bytes()?.clone();
    }
    ensure!(cursor.0.is_empty() && seen == names(150));
    // The schedule that a cursor names may have been removed.
    queue.ok("amend", T0, words!["remove", "s063"])?;
    let page = queue.ok("schedules", T0, words!["some s063", 1, ""])?;
    ensure!(page.part(2)?.part(0)?.part(0)?.text()? == "s064");
    Ok(())
}

/// Entries that have only a name: such schedules stay.
fn staying(names: &[String]) -> Vec<Text> {
    let item = |name: &String| words![name, "", "", "", "", ""];
    names.iter().flat_map(item).collect()
}

fn texts(reply: &Reply) -> Result<Vec<String>> {
    reply.list()?.iter().map(Reply::text).collect()
}

#[test]
fn prune_removes_24_schedules_per_call_and_reports_more() -> Result<()> {
    let mut queue = with_many(100)?;
    queue.ok("promote", T0 + SECOND, words![1_000])?;
    // The last call that removes schedules is full, and all schedules behind these stay.
    let stays = [names(100)[10..40].to_vec(), names(100)[78..].to_vec()].concat();
    let call = |words: &str| [words!["some", "", words], staying(&stays)].concat();
    let dry = queue.ok("schedule", T0, call("prune dry_run"))?;
    ensure!(dry.part(3)?.list()?.len() == 48 && dry.part(4)?.int()? == 0);
    let mut removed = Vec::new();
    for (count, more) in [(24, 1), (24, 0), (0, 0)] {
        let reply = queue.ok("schedule", T0, call("prune"))?;
        let some = texts(reply.part(3)?)?;
        ensure!(some.len() == count && reply.part(4)?.int()? == more);
        ensure!(texts(reply.part(2)?)?.iter().all(|reply| reply == "STAYS"));
        removed.extend(some);
        check(&mut queue)?;
    }
    ensure!(removed == texts(dry.part(3)?)?);
    let page = queue.ok("schedules", T0, words!["", 1_000, ""])?;
    ensure!(page.part(2)?.list()?.len() == 52);
    // A name without a schedule is not among those that stay, and creates none.
    let other = [words!["some", "", "prune"], staying(&["other".to_owned()])].concat();
    queue.ok("schedule", T0, other)?;
    ensure!(show(&mut queue, "other").is_err());
    check(&mut queue)
}

#[test]
fn the_names_of_the_schedules_of_a_set_stay_sorted() -> Result<()> {
    let mut random = fastrand::Rng::with_seed(7);
    let mut queue = Queue::start()?;
    let mut expected = BTreeSet::new();
    for _ in 0..60 {
        let pick = |random: &mut fastrand::Rng| {
            let name: String = (0..random.usize(1..4))
                .map(|_| random.char('a'..'e'))
                .collect();
            name
        };
        let some: BTreeSet<_> = (0..random.usize(1..6)).map(|_| pick(&mut random)).collect();
        if random.bool() {
            let items: Vec<_> = some.iter().map(|name| every(name, "every=1000")).collect();
            declare(&mut queue, T0, &items)?;
            expected.extend(some);
        } else {
            let names = some.iter().map(Text::from).collect();
            queue.ok("amend", T0, [words!["remove"], names].concat())?;
            expected.retain(|name| !some.contains(name));
        }
        let stored = queue.state()?.meta[&"schedules:some".into()].text();
        let listed: Vec<_> = expected.iter().cloned().collect();
        ensure!(stored == format!("\n{}", listed.join("\n")), "{stored:?}");
        check(&mut queue)?;
    }
    Ok(())
}

#[test]
fn a_queue_has_at_most_1000_sets_and_forgets_an_empty_one() -> Result<()> {
    let mut queue = Queue::start()?;
    for set in 0..1_000 {
        queue.ok("schedule", T0, words![format!("{set}"), 5, ""])?;
    }
    let more = queue.call("schedule", T0, words!["more", "", ""])?;
    ensure!(
        format!("{more:?}").contains("at most 1000 sets"),
        "{more:?}"
    );
    let items = [every("a", "every=1000")];
    apply(&mut queue, T0, ["7", "5", "forget"], &items)?;
    // The set has a schedule, so it is not forgotten.
    ensure!(apply(&mut queue, T0, ["7", "4", ""], &[])?.0 == "STALE 5");
    let (_, _, removed) = apply(&mut queue, T0, ["7", "5", "forget prune"], &[])?;
    ensure!(removed == ["a"]);
    ensure!(apply(&mut queue, T0, ["more", "", ""], &[])?.0 == "OK");
    let again = queue.call("schedule", T0, words!["7", 4, ""])?;
    ensure!(
        format!("{again:?}").contains("at most 1000 sets"),
        "{again:?}"
    );
    queue.ok("schedule", T0, words!["more", "", "forget"])?;
    ensure!(
        apply(&mut queue, T0, ["7", "4", ""], &[])?.0 == "OK",
        "revision 5 is forgotten"
    );
    Ok(())
}

#[test]
fn replace_removes_at_most_1000_earlier_ticks() -> Result<()> {
    let mut queue = with("every=1000 overlap=replace")?;
    let now = T0 + 1_000 * SECOND;
    for tens in 0..10 {
        let times = (0..100).map(|at| Text::from(T0 - tens * 100 - at));
        queue.ok("trigger", now, [words!["s"], times.collect()].concat())?;
    }
    let granted = queue.ok("claim", now, words![1_000, token('t'), 30 * SECOND])?;
    ensure!(granted.deliveries()?.len() == 499, "the timer is the first");
    let counts = show(&mut queue, "s")?.counts;
    ensure!(counts == [0, 999, 1, 0], "{counts:?}");
    let (id, token) = (format!("s@{}", T0 - 900), token('t'));
    queue.ok("ack", now, words![token, 1, id])?;
    let ids = [(); 2].map(|()| ticks(&mut queue, now + SECOND));
    let [_, ids] = ids;
    ensure!(ids?.contains(&tick(now + SECOND)));
    Ok(())
}

#[test]
fn purge_skips_timers_that_are_due_before_the_messages() -> Result<()> {
    let mut queue = with_many(150)?;
    let due = T0 + 10 * SECOND;
    for at in 0..5 {
        queue.push(T0, &format!("m{at}"), due, "payload")?;
    }
    for (limit, purged, left) in [(2, 2, 3), (9, 3, 0), (9, 0, 0)] {
        let reply = queue.ok("purge", T0, words!["scheduled", limit, due])?;
        let found = (reply.part(1)?.int()?, reply.part(2)?.int()?);
        ensure!(found == (purged, left), "{found:?}");
        check(&mut queue)?;
    }
    Ok(())
}

#[test]
fn a_purge_skips_2000_timers_and_returns_how_many() -> Result<()> {
    let mut queue = with_many(2_050)?;
    let due = T0 + 10 * SECOND;
    queue.push(T0, "m", due, "payload")?;
    for (passed, found) in [
        (0, [0, 1, 2_000]),
        (2_000, [1, 0, 2_000]),
        (2_000, [0, 0, 0]),
    ] {
        let reply = queue.ok("purge", T0, words!["scheduled", 9, "", passed])?;
        let parts = [1, 2, 3].map(|at| reply.part(at).and_then(Reply::int));
        let parts = parts.into_iter().collect::<Result<Vec<_>>>()?;
        ensure!(parts == found, "{parts:?}");
    }
    check(&mut queue)
}

#[test]
fn a_refill_with_too_many_bytes_is_refused() -> Result<()> {
    let mut queue = Queue::start()?;
    declare(&mut queue, T0, &[cron("s", "", &[T0 + SECOND])])?;
    let blanks = format!("2026a 0\n{}", " ".repeat(65_536));
    let reply = queue.call("refill", T0, words!["s", 1, 1, blanks])?;
    ensure!(format!("{reply:?}").contains("BADARGS"), "{reply:?}");
    ensure!(refill(&mut queue, T0, "2026a", 0, &[T0 + 2 * SECOND])? == "OK 2");
    Ok(())
}
