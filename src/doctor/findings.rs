//! Words the findings of the scripts `verify` and `audit`.

use crate::doctor::checkup::Finding;
use crate::doctor::shell::{dueq, redis_cli, shell_word};
use crate::error::Error;
use crate::protocol::replies::Body;

/// One entry of the reply of `verify` or `audit`.
pub(crate) struct RawFinding {
    pub(crate) kind: String,
    pub(crate) subject: Vec<u8>,
    pub(crate) detail: String,
    pub(crate) repaired: bool,
}

/// Decodes the entries of a reply.
pub(crate) fn raw_findings(body: &mut Body) -> Result<Vec<RawFinding>, Error> {
    let mut items = body.parts()?;
    let mut findings = Vec::with_capacity(items.len());
    while !items.is_empty() {
        let mut item = items.parts()?;
        findings.push(RawFinding {
            kind: item.text()?,
            subject: item.bytes()?,
            detail: item.text()?,
            repaired: item.integer()? == 1,
        });
    }
    Ok(findings)
}

/// What one kind of finding means.
struct Meaning {
    code: &'static str,
    problem: String,
    consequence: &'static str,
    remedy: String,
}

/// Builds a [`Meaning`]; the arguments are code, problem, consequence, remedy.
fn means(
    code: &'static str,
    problem: impl Into<String>,
    consequence: &'static str,
    remedy: String,
) -> Meaning {
    Meaning {
        code,
        problem: problem.into(),
        consequence,
        remedy,
    }
}

/// Words one finding of the queue with this name.
pub(crate) fn finding(queue: &str, raw: RawFinding) -> Finding {
    let Meaning {
        code,
        problem,
        consequence,
        remedy,
    } = match raw.kind.as_str() {
        "placeholder" | "meta" | "listpack" | "wake" | "silent" | "ready_limit" => {
            of_the_frame(queue, &raw)
        }
        _ => of_a_message(queue, &raw),
    };
    Finding {
        code,
        subject: raw.subject,
        problem,
        consequence,
        remedy,
        repaired: raw.repaired,
    }
}

impl RawFinding {
    /// The command that repairs the finding; empty once it is repaired.
    fn repair(&self, queue: &str) -> String {
        if self.repaired {
            String::new()
        } else {
            dueq("doctor --repair", &[queue.as_bytes()])
        }
    }

    /// The command that repairs the finding, followed by a step that the command does not do.
    fn repair_then(&self, queue: &str, rest: &str) -> String {
        if self.repaired {
            rest.to_owned()
        } else {
            format!("{}; then {rest}", self.repair(queue))
        }
    }
}

/// The meaning of a finding of `verify`: keys, settings and the wake-up list.
fn of_the_frame(queue: &str, raw: &RawFinding) -> Meaning {
    let name = queue.as_bytes();
    let subject = String::from_utf8_lossy(&raw.subject);
    let detail = &raw.detail;
    let repair = raw.repair(queue);
    match (raw.kind.as_str(), &*subject) {
        ("placeholder", _) => means(
            "placeholder",
            format!("{subject} has lost its placeholder"),
            "a slot migration stalls every call; in the ready list, a message is taken for the \
             placeholder and is not delivered",
            repair,
        ),
        ("meta", "layout") => means(
            "meta",
            "meta has no field layout, although other keys of the queue exist",
            "for every client the queue does not exist: nothing is delivered until the next push",
            repair,
        ),
        ("meta", "test") => means(
            "meta",
            "meta has the field test: the queue is in test mode",
            "any caller of its scripts may set the clock: messages may be early, leases may run out",
            repair,
        ),
        ("meta", _) => means(
            "meta",
            format!("{subject} in meta is {detail:?}"),
            "scripts that read it fail, some of them halfway",
            repair,
        ),
        ("listpack", _) => {
            let setting = redis_cli("CONFIG SET zset-max-listpack-value 64");
            means(
                "listpack",
                format!("{subject} has the encoding listpack"),
                "every write scans the whole key",
                format!("{repair}; for new queues: {setting}, and the same for hash-"),
            )
        }
        ("wake", _) => means(
            "wake",
            format!("{subject} is not a list: another program has written it"),
            "no node is woken: messages are up to a second late",
            redis_cli(&format!("RENAME {} ELSEWHERE", shell_word(&raw.subject))),
        ),
        ("silent", _) => {
            let start = format!("start a worker: {}", dueq("work", &[name]));
            means(
                "silent",
                format!(
                    "a message has been due for {detail} ms, the wake-up list is empty, and no \
                     worker beats"
                ),
                "a client that waits on the wake-up list is not woken",
                raw.repair_then(queue, &start),
            )
        }
        _ => means(
            "ready_limit",
            format!("{detail} messages are ready, which is more than 1,000"),
            "cancel and reschedule of ready messages are slow until workers have claimed them",
            dueq("work", &[name]),
        ),
    }
}

/// The meaning of a finding of `audit`: the state of one id.
fn of_a_message(queue: &str, raw: &RawFinding) -> Meaning {
    let detail = &raw.detail;
    let repair = raw.repair(queue);
    match raw.kind.as_str() {
        "entry" => means(
            "entry",
            format!(
                "{:?} in the ready list is not an entry",
                String::from_utf8_lossy(&raw.subject)
            ),
            "a claim drops it",
            repair,
        ),
        "hollow" => means(
            "hollow",
            format!("it is {detail}, but has no payload"),
            "the message is lost: once it is due, a claim drops it silently",
            raw.repair_then(queue, "push it again, if it was not handled"),
        ),
        "unclaimed" => means(
            "unclaimed",
            "it has a lease, but no fencing token",
            "no handler can settle it, and cancel treats it as ready",
            repair,
        ),
        "unleased" => means(
            "unleased",
            "it has a claim, but no lease",
            "if its handler dies, it is never taken back",
            repair,
        ),
        "unmarked" => means(
            "unmarked",
            "it has a lease of its own that its claim does not mention",
            "settling it leaves that lease behind, and a later reap treats it as a crash",
            repair,
        ),
        "claim" => means(
            "claim",
            format!("the records of a claim do not match its ids: {detail}"),
            "if its handlers die, some messages are never taken back, or the records stay for ever",
            repair,
        ),
        "doubled" => means(
            "doubled",
            format!("it is in more than one state: {detail}"),
            "it may be delivered twice, or after it was acked or cancelled",
            repair,
        ),
        "unplaced" => {
            let requeue = dueq("requeue", &[queue.as_bytes(), &raw.subject]);
            means(
                "unplaced",
                "its payload exists, but it is in no state",
                "it is never delivered, and cannot be pushed again",
                raw.repair_then(
                    queue,
                    &format!("it is dead: {requeue}, if it was not handled"),
                ),
            )
        }
        "score" => means(
            "score",
            format!("it is {detail}, which is not a valid time"),
            "it may never be delivered, taken back or trimmed",
            repair,
        ),
        "attrs" if detail == "absent" => means(
            "attrs",
            "it has attempts or options, but no payload",
            "a new message with this id would inherit them",
            repair,
        ),
        "attrs" => means(
            "attrs",
            "its attempts and options cannot be decoded",
            "they are ignored",
            repair,
        ),
        _ => means(
            "other",
            format!("{} {detail}", raw.kind),
            "this release does not know this finding",
            "use a newer dueq".to_owned(),
        ),
    }
}
