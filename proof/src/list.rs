//! The names of the proofs.

/// A proof: the command that runs it, its usual duration, and what it shows.
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
        "the same on three masters, with moving slots and a number of partitions that changes",
    ),
    (
        "broken",
        "16 min, half with --jobs 2",
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
        "rate and leased messages under faults; a million expired messages",
    ),
    (
        "uniqueness",
        "10 min",
        "windows, debounces, next messages and follow-ups, by the server's own record",
    ),
    (
        "schedules",
        "10 min",
        "ticks under faults and over clock changes",
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

pub fn text() -> String {
    let mut lines = vec!["dueq-proof NAME, on a release build:".to_owned()];
    for (name, time, what) in PROOFS {
        lines.push(format!("  {name:<16}{time:<28}{what}"));
    }
    lines.join("\n")
}
