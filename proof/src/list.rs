//! The names of the proofs.

/// A proof: how it is run, its usual duration, and what it shows.
type Proof = (&'static str, &'static str, &'static str);

const PROOFS: [Proof; 9] = [
    (
        "chaos",
        "1 min, or --duration",
        "every guarantee, under faults of server, processes and network",
    ),
    (
        "chaos --cluster",
        "1 min, or --duration",
        "the same on three masters, with moving slots and a queue of twelve partitions",
    ),
    (
        "broken",
        "12 min, half with --jobs 2",
        "that the checker catches each broken script and program",
    ),
    (
        "check FOLDER",
        "seconds",
        "the histories of a run once more",
    ),
    (
        "limits",
        "15 min",
        "rate and leased messages under faults; breaks; a million expired messages",
    ),
    (
        "uniqueness",
        "10 min",
        "windows, debounces and next messages, by the server's own record",
    ),
    (
        "schedules",
        "10 min",
        "ticks under faults, without nodes and over clock changes; previews",
    ),
    (
        "poison",
        "5 min",
        "whom the failures of poison messages in batches are charged to",
    ),
    (
        "soak",
        "1 h, or --duration",
        "that memory, descriptors and lateness do not grow",
    ),
];

/// Tests of other crates that also run long.
const TESTS: [Proof; 3] = [
    (
        "DUEQ_CONSUMERS_MESSAGES=10000 cargo test -p dueq-cli --test consumers -- --nocapture",
        "8 min",
        "consumers that are curl behind nginx lose no message; needs both",
    ),
    (
        "DUEQ_OPERATIONS_DEAD=100000 cargo test --release -p dueq-serve --test http -- operations:: --nocapture",
        "3 min",
        "operations over whole queues go on after a restart of the server of HTTP",
    ),
    (
        "DUEQ_HISTORY_MINUTES=15 cargo test -p dueq-serve --test http -- history::restarts --nocapture",
        "15 min",
        "the history of a queue is whole across restarts",
    ),
];

pub fn text() -> String {
    let mut lines = vec!["dueq-proof NAME, on a release build:".to_owned()];
    for (name, time, what) in PROOFS {
        lines.push(format!("  {name:<16}{time:<28}{what}"));
    }
    lines.push("tests that prove the rest:".to_owned());
    for (command, time, what) in TESTS {
        lines.extend([format!("  {command}"), format!("{:18}{time:<28}{what}", "")]);
    }
    lines.join("\n")
}
