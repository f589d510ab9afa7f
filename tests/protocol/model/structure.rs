//! Invariants that hold in every state in Redis, checked without the model.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};

use crate::model::world::{Now, READY_LIMIT};
use crate::reply::Text;
use crate::state::{Fields, Scores, State, placeholder};

/// Checks the invariants. `call_at` is the time of a call that must add wake-up tokens if it leaves
/// work.
pub(crate) fn check_structure(state: &State, call_at: Option<Now>) -> Result<()> {
    let Some(_) = state.meta.get(&Text::from("layout")) else {
        return Ok(());
    };
    let ids = |scores: &Scores| {
        scores
            .iter()
            .map(|(id, _)| id.clone())
            .filter(|id| *id != placeholder())
            .collect::<Vec<_>>()
    };
    let fields = |fields: &Fields| {
        fields
            .keys()
            .filter(|id| **id != placeholder())
            .cloned()
            .collect::<Vec<_>>()
    };
    for (name, scores) in [
        ("scheduled", &state.scheduled),
        ("leases", &state.leases),
        ("dead", &state.dead),
        ("recent", &state.recent),
    ] {
        ensure!(
            State::score(scores, &placeholder()) == Some(f64::INFINITY),
            "{name} has lost its placeholder"
        );
    }
    ensure!(
        State::score(&state.nodes, &placeholder()).is_some(),
        "nodes has lost its placeholder"
    );
    ensure!(
        state.ready.first() == Some(&placeholder()),
        "ready does not begin with its placeholder"
    );
    for (name, hash) in [
        ("claims", &state.claims),
        ("messages", &state.messages),
        ("attrs", &state.attrs),
        ("meta", &state.meta),
    ] {
        ensure!(
            hash.contains_key(&placeholder()),
            "{name} has lost its placeholder"
        );
    }

    let after_colon = |entry: &Text| {
        let colon = entry.0.iter().position(|byte| *byte == b':').unwrap_or(0);
        Text(entry.0[colon + 1..].to_vec())
    };
    let mut placed: Vec<Text> = state.ready.iter().skip(1).map(after_colon).collect();
    placed.extend([ids(&state.scheduled), leased(state)?, ids(&state.dead)].concat());
    placed.sort();
    ensure!(
        placed == fields(&state.messages),
        "an id is not in exactly one state: {placed:?}"
    );
    ensure!(
        fields(&state.attrs)
            .iter()
            .all(|id| match id.0.strip_prefix(b"\x03") {
                // The entry is the next message of a delivery.
                Some(id) => state.claims.contains_key(&Text(id.to_vec())),
                None => state.messages.contains_key(id),
            }),
        "attrs without a message"
    );
    ensure!(
        state.ready.len() <= READY_LIMIT + 1,
        "the ready list exceeds the ready limit"
    );
    ensure!(
        state.wake.len() <= 2,
        "the wake-up list has {} tokens",
        state.wake.len()
    );
    let is_shut = |now: &Now| {
        let meta = |name: &str| state.meta.get(&Text::from(name)).map(Text::text);
        let closed_until = meta("closed_until").unwrap_or_default();
        let is_full = closed_until.starts_with("full ");
        let until = closed_until
            .trim_start_matches("full ")
            .parse()
            .unwrap_or(0_u64);
        meta("paused").is_some() || is_full || until > now.floor()
    };
    if let Some(now) = call_at.filter(|now| !is_shut(now)) {
        let due = state
            .scheduled
            .iter()
            .any(|(_, due)| *due <= now.floor() as f64);
        ensure!(
            !(due || state.ready.len() > 1) || state.wake.len() == 2,
            "work remains and the wake-up list is not full"
        );
    }
    Ok(())
}

/// The leased ids. Checks that each has a claim and a lease (its own or its claim's), and that each
/// claim's lease fits its ids.
pub(crate) fn leased(state: &State) -> Result<Vec<Text>> {
    let (mut ids, mut leases, mut held) = (Vec::new(), Vec::new(), BTreeMap::<Text, u64>::new());
    for (id, claim) in state
        .claims
        .iter()
        .filter(|(id, _)| id.0.first().is_some_and(|byte| *byte > 5))
    {
        ensure!(claim.0.len() > 16, "{id:?} has a claim that cannot be read");
        ids.push(id.clone());
        if claim.0.ends_with(b"+") {
            leases.push(id.clone());
        } else {
            let token = &claim.0[..16];
            let list = state.claims.get(&Text([b"\x01", token].concat()));
            let granted = list.is_some_and(|list| {
                list.0
                    .split(|byte| *byte == b'\n')
                    .any(|granted| *granted == id.0)
            });
            ensure!(
                granted,
                "{id:?} is not among the ids that its claim granted"
            );
            *held.entry(Text(token.to_vec())).or_default() += 1;
        }
    }
    let records = state
        .claims
        .keys()
        .filter(|field| matches!(field.0.first(), Some(1 | 2)))
        .count();
    ensure!(
        records == 2 * held.len(),
        "the record of a claim outlived its lease"
    );
    for (token, count) in held {
        let counted = state.claims.get(&Text([b"\x02", &token.0[..]].concat()));
        ensure!(
            counted == Some(&count.into()),
            "a claim counts {counted:?} ids and has {count}"
        );
        leases.push(Text([b"\x01", &token.0[..]].concat()));
    }
    leases.sort();
    let mut found: Vec<Text> = state
        .leases
        .iter()
        .map(|(id, _)| id.clone())
        .filter(|id| *id != placeholder())
        .collect();
    found.sort();
    ensure!(found == leases, "the leases are {found:?}, not {leases:?}");
    Ok(ids)
}
