//! Invalid arguments, which verbs must refuse.

use crate::queue::{T0, token};
use crate::reply::{Text, words};
use crate::vectors::{plausible, refused::bad_moves};

/// Maps that the home must refuse.
fn bad_maps() -> Vec<String> {
    let many: Vec<_> = (0..256).map(|tag| tag.to_string()).collect();
    let mut bad: Vec<String> = [
        "",
        "7",
        "7|-",
        "7|-|-|-",
        "x|-|-",
        "0|-|-",
        "07|-|-",
        "-7|-|-",
        "1.5|-|-",
        "9007199254740992|-|-",
        "99999999999999999|-|-",
        "7||-",
        "7||",
        "7|4|- 4",
        "7|-|4 -",
        "7|-|4",
        "7|-|- 4 4",
        "7|- -|-",
        "7|-|- 04",
        "7|-|- +4",
        "7|-|- 1000000000",
        "7|-|-  4",
        "7|-|- 4 ",
        "7|-| -",
        "7|-|- 4\n",
    ]
    .map(str::to_owned)
    .to_vec();
    bad.push(format!("7|-|- {}", many.join(" ")));
    bad
}

/// Reports that a beat must refuse.
fn bad_reports() -> Vec<String> {
    let many = vec!["1"; 68].join(" ");
    let digits = format!("0 {}|", "1 ".repeat(40) + &"0".repeat(1_600));
    let mut bad: Vec<String> = [
        "||",
        "0 1",
        "0|",
        "|0",
        "68 1|",
        "67 1 1|",
        "0 1000000001|",
        "|0 1 -1",
        "0 1.5|",
        "x|",
        "0 1|0 1\n",
        "-1 1|",
        "0 1e3|",
    ]
    .map(str::to_owned)
    .to_vec();
    bad.extend([format!("0 1 {many}|"), format!("1 {many}|"), digits]);
    bad
}

/// Arguments (without the time) that a verb must refuse.
pub(crate) fn nonsense(verb: &str) -> Vec<Vec<Text>> {
    let numbers = ["", "x", "0", "-1", "1.5", "1001", "nan", "inf"];
    let with_numbers = |make: &dyn Fn(&str) -> Vec<Text>| numbers.map(make).to_vec();
    let many = |item: Vec<Text>, count: usize| {
        item.iter()
            .cycle()
            .take(item.len() * count)
            .cloned()
            .collect::<Vec<_>>()
    };
    let item = match verb {
        "push" | "upsert" => words!["a", "+1", "", ""],
        "ack" => words![token('l'), 1, "l"],
        "release" => words!["l", token('l')],
        "again" | "bury" | "extend" | "snooze" | "throttle" => words!["l", token('l'), "5"],
        "retry" => words!["l", token('l'), "5", ""],
        "reschedule" => words!["s", "+5", ""],
        _ => words!["s"],
    };
    let mut bad = match verb {
        "promote" => [
            with_numbers(&|limit| words![limit]),
            vec![words![10, ""], words![10, "1"]],
        ]
        .concat(),
        "claim" => {
            let leases = ["", "x", "0", "-1", "1.5", "86400001", "nan"];
            let counts = ["", "x", "-1", "0.5", "1001", "nan"];
            let tokens = [
                Text::default(),
                "x".repeat(15).into(),
                "x".repeat(17).into(),
            ];
            let mut bad = vec![
                words![],
                words![1, token('a')],
                words![1, token('a'), 5, ""],
                words![1, token('a'), 5, "1"],
            ];
            bad.extend(leases.map(|lease| words![1, token('a'), lease]));
            bad.extend(counts.map(|count| words![count, token('a'), 5]));
            bad.extend(tokens.map(|token| words![1, token, 5]));
            bad
        }
        "reap" => [
            with_numbers(&|limit| words![limit]),
            vec![
                words![10, 10],
                words!["ids"],
                words!["ids", "l"],
                words!["ids", "l", "lease", "m"],
            ],
        ]
        .concat(),
        "purge" => {
            let states = ["", "leased", "absent", "x"]
                .map(|state| words![state, 10])
                .to_vec();
            [
                with_numbers(&|limit| words!["dead", limit]),
                states,
                vec![
                    words!["dead"],
                    words!["dead", 1, 1, 1, 1, 1],
                    words!["ready", 1, 1, 1, 1],
                ],
                ["x", "-1", "1.5", "1234567890123456"]
                    .map(|before| words!["dead", 1, before])
                    .to_vec(),
                ["", "x", "-1", "1234567890123456"]
                    .map(|passed| words!["dead", 1, "", passed])
                    .to_vec(),
            ]
            .concat()
        }
        "get" => {
            let mut bad = vec![words![], words!["s", 1, 1]];
            bad.extend(["", "x", "-1", "1.5", "1e3", "123456789"].map(|most| words!["s", most]));
            bad
        }
        "dues" => {
            let mut bad: Vec<_> = ["", "x", "-1", "1.5", "1e3", "inf", "1234567890123456"]
                .map(|time| words![1, time])
                .to_vec();
            bad.extend([words![5, 5], words![5, 4], words![""]]);
            bad.push((1..=61).map(Text::from).collect());
            bad
        }
        "held" => {
            let tokens = ["".to_owned(), "x".repeat(15), "x".repeat(17)];
            let mut bad = tokens.map(|token| words![token]).to_vec();
            bad.extend([words![], words![token('l'), ""]]);
            bad
        }
        "requeue" => {
            let mut bad = with_numbers(&|limit| words!["oldest", limit, ""]);
            bad.extend([
                words![],
                words!["ids"],
                words!["newest", 1, ""],
                words!["oldest", 1],
                words!["oldest", 1, "", ""],
                words!["oldest", 1, "", 5, ""],
            ]);
            bad.extend(["x", "-1", "1.5"].map(|after| words!["oldest", 1, "", after]));
            bad.extend(["x", "-1", "1.5"].map(|before| words!["oldest", 1, before]));
            bad.push([words!["ids"], many(item, 1_001)].concat());
            bad
        }
        "peek" => {
            let mut bad = with_numbers(&|limit| words!["dead", "", limit]);
            bad.extend(["", "absent"].map(|state| words![state, "", 10]));
            bad.extend(["x", ":", "-1:a", "1.5:a"].map(|cursor| words!["dead", cursor, 10]));
            bad.extend([words![], words!["dead"], words!["dead", "", 1, "oldest"]]);
            bad.push(words!["dead", "", 1, "newest", ""]);
            bad
        }
        "beat" => {
            let nodes = [Text::default(), "x".repeat(201).into(), "a\nb".into()];
            let mut bad = vec![
                words![],
                words!["node"],
                words!["node", "go"],
                words!["node", "stay", ""],
            ];
            bad.extend(nodes.map(|node| words![node, "stay"]));
            let parks = ["", "999", "60001", "x"];
            bad.extend(parks.map(|park| words!["node", "first", park]));
            let tags = ["x", "01", "1000000000", "-1", "1,2", "- 3 x"];
            bad.extend(tags.map(|tags| words!["node", "watch", 0, tags]));
            bad.extend(["", "x", "-1"].map(|known| words!["node", "watch", known, ""]));
            let reports = bad_reports();
            bad.extend(reports.into_iter().flat_map(|report| {
                [
                    words!["node", "stay", &report],
                    words!["node", "first", 2_000, &report],
                    words!["node", "leave", report],
                ]
            }));
            bad.extend([
                words!["node", "watch"],
                words!["node", "watch", 0],
                words!["node", "second", 2_000, ""],
                words!["node", "unwatch", 0],
                words!["node", "leave", 2_000],
                words!["node", "leave", 2_000, "|"],
                words!["node", "stay", "|", 2_000],
                words!["node", "stay", "|", "|"],
                words!["node", "stay", 2_000, 2_000, "|"],
                words!["node", "unwatch", "|"],
                words!["node", "watch", 0, "|"],
                words!["node", "go", "|"],
            ]);
            bad
        }
        "remap" => {
            let mut bad: Vec<_> = bad_maps()
                .iter()
                .flat_map(|map| [words!["change", 0, map], words!["forward", map]])
                .collect();
            bad.extend(["", "x", "-1", "1.5"].map(|epoch| words!["close", epoch, "7|-|- 203"]));
            bad.extend([
                words![],
                words!["change", "7|-|-"],
                words!["forward", 0, "7|-|-"],
                words!["change", 0, "7|-|-", ""],
                words!["open", 0, "7|-|-"],
                // The new epoch is not larger than the expected one.
                words!["change", 7, "7|-|-"],
                words!["close", 8, "7|-|-"],
            ]);
            bad
        }
        "depart" => bad_moves::bad_departs(),
        "arrive" => bad_moves::bad_arrives(),
        "configure" => {
            let limits = [
                "max_attempts",
                "max_payload_bytes",
                "dead_keep_ms",
                "dead_keep",
                "max_messages",
                "max_leased",
                "max_throttle_ms",
                "rate",
            ];
            let mut bad = vec![
                words![],
                words!["max_attempts"],
                words!["unknown", 1],
                words!["max_attempts", 3, "unknown", 1],
            ];
            bad.extend(limits.map(|name| words![name, 0]));
            bad.extend(["x", "-1", "1.5", "", "nan"].map(|value| words!["max_crashes", value]));
            bad.push(words!["max_payload_bytes", 16_777_217u64]);
            bad.push(words!["max_leased", 1_000_001]);
            bad.push(words!["max_throttle_ms", 3_155_760_000_001u64]);
            bad.push(words!["max_throttle_ms", ""]);
            let rates = [
                "10",
                "10/1000",
                "10/1000/11",
                "10/1000/0",
                "0/1000/1",
                "10/0/1",
                "010/1000/1",
                "10/1000/1/1",
                "10/1000/1 ",
                "1000001/1000/1",
                "10/2592000001/1",
                "1.5/1000/1",
                "-1/1000/1",
            ];
            bad.extend(rates.map(|rate| words!["rate", rate]));
            bad
        }
        "history" => vec![
            words![],
            words![""],
            words!["minute"],
            words!["m"],
            words!["minutes", ""],
        ],
        "resume" | "stats" | "nodes" => vec![words![""]],
        "pause" => vec![
            words![""],
            words!["0"],
            words!["-1"],
            words!["1.5"],
            words!["1e3"],
            words!["3155760000001"],
            words!["1", "1"],
        ],
        "verify" => vec![words![], words!["2"], words!["", ""]],
        "trigger" => vec![
            words![],
            words!["s"],
            words!["s", "now", 1],
            // More values than Lua can unpack.
            [words!["s"], many(words![1], 9_000)].concat(),
        ],
        "audit" => {
            let mut bad = with_numbers(&|limit| words!["messages", "0", limit, ""]);
            bad.extend(["", "recent", "x"].map(|part| words![part, "0", 10, ""]));
            let (beyond, long) = ("18446744073709551616", "1".repeat(21));
            let cursors = ["", "x", "-1", "1.5", beyond, &long];
            bad.extend(cursors.map(|cursor| words!["dead", cursor, 10, ""]));
            bad.extend([
                words![],
                words!["dead", "0", 10],
                words!["dead", "0", 10, "2"],
                words!["dead", "0", 10, "", ""],
            ]);
            bad
        }
        "push" => {
            let mut bad = vec![
                words![],
                words![""],
                words!["", "a"],
                words!["", "a", "+1", "", "", "b"],
            ];
            let (long, short) = (format!("{T0} {}", "n".repeat(90)), format!("{T0} nonce67"));
            let (bare, unnamed) = (T0.to_string(), format!("{T0}.12345678"));
            let odd = [
                " 1795258732e3 nonce678",
                "1795258732e3  nonce678",
                "0x1a1fe12d600 nonce678",
            ];
            let attempts = [
                "x",
                "-1",
                "10",
                "1.5",
                "+5",
                "10 nonce678",
                "nonce678",
                "nonce678901234567890123",
            ];
            bad.extend(
                attempts
                    .into_iter()
                    .chain([&*long, &short, &bare, &unnamed])
                    .chain(odd)
                    .map(|attempt| [words![attempt], item.clone()].concat()),
            );
            bad.push([words![""], many(item, 1_001)].concat());
            bad
        }
        "ack" => {
            let counts = ["", "x", "0", "-1", "0.5", "2", "1001", "nan", "inf"];
            let mut bad = counts.map(|count| words![token('l'), count, "l"]).to_vec();
            bad.extend([
                words![],
                words![token('l')],
                words![token('l'), 1],
                many(item, 1_001),
            ]);
            bad.push([words![token('l'), 1_001], many(words!["l"], 1_001)].concat());
            bad
        }
        "throttle" => {
            let waits = ["", "x", "0", "-1", "1.5", "3155760000001"];
            let mut bad = waits.map(|wait| words!["close", wait]).to_vec();
            bad.extend([words![], words!["close"], many(item, 1_001)]);
            bad
        }
        "cancel" => vec![
            words![],
            words![""],
            words!["2", "s"],
            [words![""], many(item, 1_001)].concat(),
        ],
        _ => vec![words![], many(item, 1_001)],
    };
    if [
        "ack",
        "again",
        "bury",
        "extend",
        "release",
        "reschedule",
        "retry",
        "snooze",
        "throttle",
    ]
    .contains(&verb)
    {
        bad.extend([words!["l"], [plausible(verb), words!["l"]].concat()]);
    }
    bad
}
