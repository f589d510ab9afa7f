//! Faults in keys that were written by hand: `verify` and `audit` find and repair them.

use anyhow::{Context, Result, ensure};

use crate::model::check_structure;
use crate::model::repairs::PARTS;
use crate::queue::{Calls, Queue, SECOND, T0, token};
use crate::reply::{Reply, Text, words};
use crate::vectors::{drain, with_every_state};

/// The findings of verify and audit: kind, subject and detail of each.
pub(crate) fn findings(queue: &mut Queue, now: u64, repair: bool) -> Result<Vec<[String; 3]>> {
    let word = if repair { "1" } else { "" };
    let mut replies = vec![queue.ok("verify", now, words![word])?.part(1)?.clone()];
    for part in PARTS {
        let mut cursor = "0".to_owned();
        loop {
            let reply = queue.ok("audit", now, words![part, cursor, 2, word])?;
            cursor = reply.part(1)?.text()?;
            replies.push(reply.part(3)?.clone());
            if cursor == "0" {
                break;
            }
        }
    }
    let mut found = Vec::new();
    for finding in replies
        .iter()
        .map(Reply::list)
        .collect::<Result<Vec<_>>>()?
        .concat()
    {
        let repairable =
            finding.part(0)?.text()? != "ready_limit" && finding.part(0)?.text()? != "wake";
        ensure!(
            finding.part(3)?.int()? == i64::from(repair && repairable),
            "{finding:?}"
        );
        found.push([
            finding.part(0)?.text()?,
            finding.part(1)?.text()?,
            finding.part(2)?.text()?,
        ]);
    }
    found.sort();
    Ok(found)
}

/// Plants a fault. A check must find exactly this fault and change nothing, and a repair must find
/// it too.
/// After the repair a check finds nothing, the structure is sound, and each id of `then` is in its
/// state.
pub(crate) fn check_repair(
    plant: &[Vec<Text>],
    finds: &[[&str; 3]],
    then: &[(&str, &str)],
) -> Result<Queue> {
    let mut queue = with_every_state()?;
    queue.through(Calls::ByRole)?; // an operator's rights suffice
    ensure!(
        findings(&mut queue, T0, false)?.is_empty() && findings(&mut queue, T0, true)?.is_empty(),
        "findings in a sound queue"
    );
    for words in plant {
        let reply = queue.command(words.clone())?;
        ensure!(reply.code().is_none(), "{words:?}: {reply:?}");
    }
    let before = queue.contents()?;
    let seen = findings(&mut queue, T0, false)?;
    ensure!(seen == finds, "found {seen:?}, not {finds:?}");
    ensure!(queue.contents()? == before, "the check changed a key");
    let repaired = findings(&mut queue, T0, true)?;
    ensure!(
        repaired == finds || repaired.iter().all(|one| seen.contains(one)),
        "repaired {repaired:?}"
    );
    let left = findings(&mut queue, T0, false)?;
    ensure!(left.is_empty(), "a check after the repair found {left:?}");
    let state = queue.state()?;
    check_structure(&state, None)?;
    for (id, wanted) in then {
        let reply = queue.ok("get", T0, words![*id])?;
        let found = reply
            .part(1)?
            .list()?
            .get(1)
            .map_or(Ok("absent".to_owned()), Reply::text)?;
        ensure!(found == *wanted, "{id} is {found}, not {wanted}");
    }
    Ok(queue)
}

pub(crate) const KEPT: [(&str, &str); 4] = [
    ("s", "scheduled"),
    ("r", "ready"),
    ("l", "leased"),
    ("d", "dead"),
];

#[test]
fn a_payload_in_no_state_becomes_a_dead_letter() -> Result<()> {
    let mut queue = check_repair(
        &[words!["ZREM", "dueq:{q}:scheduled", "s"]],
        &[["unplaced", "s", ""]],
        &[("s", "dead"), KEPT[1], KEPT[2], KEPT[3]],
    )?;
    let reply = queue.ok("get", T0, words!["s"])?;
    ensure!(
        reply.part(1)?.list()?[11]
            .text()?
            .contains("may have been handled"),
        "{reply:?}"
    );
    ensure!(queue.items("requeue", T0, words!["ids", "s"])? == ["REQUEUED"]);
    ensure!(drain(&mut queue, T0)? == ["r", "s"]);
    Ok(())
}

#[test]
fn an_entry_without_a_payload_is_removed() -> Result<()> {
    for (id, at) in [
        ("s", "scheduled"),
        ("r", "ready"),
        ("l", "leased"),
        ("d", "dead"),
    ] {
        let mut finds = vec![["hollow", id, at]];
        if id == "d" {
            finds.insert(0, ["attrs", "d", "absent"]);
        }
        let mut queue = check_repair(
            &[words!["HDEL", "dueq:{q}:messages", id]],
            &finds,
            &[(id, "absent")],
        )?;
        ensure!(queue.push(T0, id, T0, "again")? == "CREATED");
    }
    Ok(())
}

#[test]
fn an_id_in_two_states_is_kept_in_one_of_them() -> Result<()> {
    let (scheduled, dead, leases) = ("dueq:{q}:scheduled", "dueq:{q}:dead", "dueq:{q}:leases");
    let far = T0 + 5 * SECOND;
    check_repair(
        &[words!["ZADD", scheduled, far, "l"]],
        &[["doubled", "l", "leased scheduled"]],
        &KEPT,
    )?;
    check_repair(
        &[words!["ZADD", dead, T0, "l"]],
        &[["doubled", "l", "leased dead"]],
        &KEPT,
    )?;
    check_repair(
        &[words!["ZADD", scheduled, far, "d"]],
        &[["doubled", "d", "dead scheduled"]],
        &KEPT,
    )?;
    check_repair(
        &[words!["ZADD", scheduled, far, "r"]],
        &[["doubled", "r", "scheduled ready"]],
        &[("r", "scheduled"), KEPT[0], KEPT[2]],
    )?;
    let mut queue = check_repair(
        &[words![
            "RPUSH",
            "dueq:{q}:ready",
            format!("{T0}:r"),
            format!("{T0}:r")
        ]],
        &[["doubled", "r", "ready ready ready"]],
        &KEPT,
    )?;
    ensure!(drain(&mut queue, T0)? == ["r"], "r must be delivered once");
    // The second state is a lease without a claim, so the message stays scheduled.
    check_repair(
        &[words!["ZADD", leases, far, "s"]],
        &[["doubled", "s", "leased scheduled"], ["unclaimed", "s", ""]],
        &KEPT,
    )?;
    Ok(())
}

#[test]
fn a_lease_without_its_claim_or_the_reverse_is_repaired() -> Result<()> {
    let claims = "dueq:{q}:claims";
    for plant in [
        words!["HSET", claims, "l", "short"],
        words!["HSET", claims, "l", "x".repeat(20)],
    ] {
        // The claim is unreadable: its handler has lost the message, and a reap takes it back as a
        // crash.
        let finds = [
            ["claim", CLAIM, "counts 1, holds 0"],
            ["unclaimed", "l", ""],
        ];
        let mut queue = check_repair(&[plant], &finds, &KEPT)?;
        ensure!(queue.items("ack", T0, words![token('l'), 1, "l"])? == ["LOST"]);
    }
    let leased = words!["ZADD", "dueq:{q}:leases", T0, "r"];
    check_repair(
        &[leased, words!["LTRIM", "dueq:{q}:ready", 0, 0]],
        &[["unclaimed", "r", ""]],
        &[("r", "leased")],
    )?;
    // Without a lease and a claim, no key shows that the message was leased.
    let finds = [["claim", CLAIM, "counts 1, holds 0"], ["unplaced", "l", ""]];
    check_repair(
        &[words!["HDEL", claims, "l"]],
        &finds,
        &[("l", "dead"), KEPT[0], KEPT[1]],
    )?;
    // The claim is marked as extended, but the id has no lease of its own. Its handler can still
    // settle it.
    let plant = words!["HSET", claims, "l", format!("{}{T0}+", token('l').text())];
    let mut queue = check_repair(
        &[plant],
        &[["claim", CLAIM, "counts 1, holds 0"], ["unleased", "l", ""]],
        &KEPT,
    )?;
    ensure!(queue.items("ack", T0, words![token('l'), 1, "l"])? == ["OK"]);
    check_repair(
        &[words!["HSET", claims, "s", "y".repeat(20)]],
        &[["unleased", "s", ""]],
        &KEPT,
    )?;
    check_repair(
        &[words!["HSET", claims, "nobody", "y".repeat(20)]],
        &[["unleased", "nobody", ""]],
        &KEPT,
    )?;
    let far = T0 + 90_000 * SECOND;
    check_repair(
        &[words!["ZADD", "dueq:{q}:leases", far, of('\u{1}')]],
        &[["score", CLAIM, &format!("leased {far}")]],
        &KEPT,
    )?;
    Ok(())
}

/// The token of the claim of `l`, as findings show it.
const CLAIM: &str = "6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c";

/// The field with the ids (kind 1) or the count (kind 2) of the claim of `l`.
fn of(kind: char) -> String {
    format!("{kind}{}", token('l').text())
}

#[test]
fn a_claims_record_is_repaired_to_fit_its_ids() -> Result<()> {
    let (claims, leases) = ("dueq:{q}:claims", "dueq:{q}:leases");
    let (ids, count) = (of('\u{1}'), of('\u{2}'));
    for (plant, finds) in [
        (
            words!["HSET", claims, &count, 5],
            vec![["claim", CLAIM, "counts 5, holds 1"]],
        ),
        (
            words!["HSET", claims, &count, "x"],
            vec![["claim", CLAIM, "counts x, holds 1"]],
        ),
        (
            words!["HDEL", claims, &count],
            vec![["claim", CLAIM, "counts nothing, holds 1"]],
        ),
        (
            words!["HDEL", claims, &ids],
            vec![["claim", CLAIM, "no ids"], ["unleased", "l", ""]],
        ),
        (
            words!["HSET", claims, &ids, "k\nm"],
            vec![["claim", CLAIM, "counts 1, holds 0"], ["unleased", "l", ""]],
        ),
        (
            words!["ZREM", leases, &ids],
            vec![["claim", CLAIM, "no lease"]],
        ),
        (
            words!["ZADD", leases, T0 + 5 * SECOND, "l"],
            vec![["unmarked", "l", ""]],
        ),
    ] {
        let mut queue = check_repair(std::slice::from_ref(&plant), &finds, &KEPT)
            .with_context(|| format!("{plant:?}"))?;
        ensure!(
            queue.items("ack", T0, words![token('l'), 1, "l"])? == ["OK"],
            "{plant:?}: the handler must be able to settle l"
        );
        let state = queue.state()?;
        ensure!(
            state.leases.len() == 1 && state.claims.len() == 1,
            "{plant:?}: a lease or a record is left: {state:?}"
        );
    }
    let foreign = words![
        "HSET",
        claims,
        format!("\u{1}{}", token('k').text()),
        "a\nb"
    ];
    check_repair(
        &[foreign],
        &[["claim", "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b", "no lease"]],
        &KEPT,
    )?;
    let foreign = words!["HSET", claims, format!("\u{2}{}", token('k').text()), 3];
    check_repair(
        &[foreign],
        &[["claim", "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b", "no ids"]],
        &KEPT,
    )?;
    Ok(())
}
