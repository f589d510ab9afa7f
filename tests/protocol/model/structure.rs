//! What holds of any state in Redis, whatever the model thinks.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};

use crate::model::world::{Now, READY_LIMIT};
use crate::reply::Text;
use crate::state::{Fields, Scores, State, sentinel};

/// `rung_at` is the time of a call that must have rung for the work it left.
pub(crate) fn check_structure(state: &State, paused: bool, rung_at: Option<Now>) -> Result<()> {
    let Some(_) = state.meta.get(&Text::from("layout")) else {
        return Ok(());
    };
    let ids = |scores: &Scores| {
        scores
            .iter()
            .map(|(id, _)| id.clone())
            .filter(|id| *id != sentinel())
            .collect::<Vec<_>>()
    };
    let fields = |fields: &Fields| {
        fields
            .keys()
            .filter(|id| **id != sentinel())
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
            State::score(scores, &sentinel()) == Some(f64::INFINITY),
            "{name} has lost its sentinel"
        );
    }
    ensure!(
        State::score(&state.nodes, &sentinel()).is_some(),
        "nodes has lost its sentinel"
    );
    ensure!(
        state.ready.first() == Some(&sentinel()),
        "ready does not begin with its sentinel"
    );
    for (name, hash) in [
        ("claims", &state.claims),
        ("messages", &state.messages),
        ("attrs", &state.attrs),
        ("meta", &state.meta),
    ] {
        ensure!(
            hash.contains_key(&sentinel()),
            "{name} has lost its sentinel"
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
            .all(|id| state.messages.contains_key(id)),
        "attrs of no message"
    );
    ensure!(
        state.ready.len() <= READY_LIMIT + 1,
        "more than the ready limit is ready"
    );
    ensure!(
        state.wake.len() <= 2,
        "the wake-up list has {} tokens",
        state.wake.len()
    );
    if let Some(now) = rung_at.filter(|_| !paused) {
        let due = state
            .scheduled
            .iter()
            .any(|(_, due)| *due <= now.floor() as f64);
        ensure!(
            !(due || state.ready.len() > 1) || state.wake.len() == 2,
            "work is left and nobody is rung"
        );
    }
    Ok(())
}

/// The ids that are leased: each has a claim, and a lease, its own or that of its claim; and a claim's lease is as it must be.
pub(crate) fn leased(state: &State) -> Result<Vec<Text>> {
    let (mut ids, mut leases, mut held) = (Vec::new(), Vec::new(), BTreeMap::<Text, u64>::new());
    for (id, claim) in state
        .claims
        .iter()
        .filter(|(id, _)| id.0.first().is_some_and(|byte| *byte > 2))
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
            ensure!(granted, "{id:?} is not among what its claim granted");
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
        "something is left of a claim whose lease has ended"
    );
    for (token, count) in held {
        let counted = state.claims.get(&Text([b"\x02", &token.0[..]].concat()));
        ensure!(
            counted == Some(&count.into()),
            "a claim counts {counted:?} and holds {count}"
        );
        leases.push(Text([b"\x01", &token.0[..]].concat()));
    }
    leases.sort();
    let mut found: Vec<Text> = state
        .leases
        .iter()
        .map(|(id, _)| id.clone())
        .filter(|id| *id != sentinel())
        .collect();
    found.sort();
    ensure!(found == leases, "the leases are {found:?}, not {leases:?}");
    Ok(ids)
}
