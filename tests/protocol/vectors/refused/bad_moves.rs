//! Calls of depart and arrive that must be refused.

use crate::reply::{Text, words};
use crate::scripts::BATCH;

pub(crate) fn bad_departs() -> Vec<Vec<Text>> {
    vec![
        words!["", 0],
        words!["", 0, "17"],
        words!["", 0, "17", "x"],
        words!["", 0, "17", "", "a"],
        words!["", 0, "-", 5_000], // its own tag
        words!["", 0, "x", 5_000],
        words!["", "x", "17", 5_000],
        words!["", "", "17", 5_000],
        words!["done", 0, "17", 5_000],
        words!["done=", 0, "17", 5_000],
        words!["other=1", 0, "17", 5_000],
        words!["=1", 0, "17", 5_000],
        [words!["", 0, "17", 5_000], vec!["a".into(); 1_001]].concat(),
    ]
}

pub(crate) fn bad_arrives() -> Vec<Vec<Text>> {
    let mut bad = vec![
        words!["17", 5],
        words!["x", 5, BATCH],
        words!["17", 0, BATCH],
        words!["17", "x", BATCH],
        words!["17", "9007199254740992", BATCH],
        words!["17", 5, BATCH, ""],
        words!["17", 5, "no batch"],
    ];
    // Four records instead of five; and each part of one of another form.
    bad.push(words!["17", 5, [b"\x94", &BATCH[1..]].concat().as_slice()]);
    for part in ["scheduled", "1700003600000", "moved"] {
        let at = BATCH
            .windows(part.len())
            .position(|is| is == part.as_bytes());
        let mut batch = BATCH.to_vec();
        batch[at.unwrap_or_default() + 1] = b'\n';
        bad.push(words!["17", 5, batch.as_slice()]);
    }
    bad
}
