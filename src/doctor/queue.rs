//! Looking at a queue, and mending it.

use std::time::Duration;

use crate::doctor::deliveries::is_late;
use crate::doctor::shell::{dueq, redis_cli, shell_word};
use crate::doctor::{Checkup, Finding, Unchecked, is_denied};
use crate::error::{Error, ErrorKind};
use crate::protocol::replies::Body;
use crate::protocol::verbs::Verb;
use crate::queue::Queue;
use crate::server::lane::Repeat;

/// In this order: a lease without a claim must be mended before it decides where its id is.
const PARTS: [&str; 7] = [
    "ready",
    "leases",
    "claims",
    "messages",
    "scheduled",
    "dead",
    "attrs",
];
/// About how many entries one step looks at: a millisecond or two of Redis's time.
const STEP: &str = "250";
/// More than a beat: each of them rings for work that is left.
const BEAT: Duration = Duration::from_millis(1_200);

/// What a script found.
pub(crate) struct Raw {
    pub(crate) kind: String,
    pub(crate) what: Vec<u8>,
    pub(crate) detail: String,
    pub(crate) mended: bool,
}

impl Queue {
    /// Looks whether the queue is as it must be: each id in exactly one state, its payload, claim and attributes there, the
    /// sentinels, the numbers in its meta, encodings, the wake-up list. With `mend` it mends what can be mended; docs/protocol/verbs says of
    /// each finding into what. Takes the rights of an operator.
    ///
    /// In bounded steps, each of which decides and mends in one script call: safe while producers and workers go on.
    pub async fn examine(&self, mend: bool) -> Result<Checkup, Error> {
        let mut checkup = Checkup::default();
        match self.examined(mend, &mut checkup).await {
            Ok(()) => {}
            Err(error) if error.to_string().contains("WRONGTYPE") => {
                self.strangers(&mut checkup).await?
            }
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                let consequence = "this release does not touch it";
                checkup.wrong(
                    "layout",
                    "layout",
                    error.to_string(),
                    consequence,
                    "use a newer dueq",
                );
            }
            Err(error) if is_denied(&error) => {
                let _: Option<()> = checkup.allowed("the queue (verify, audit)", Err(error))?;
            }
            Err(error) => checkup.interrupted("the rest of the queue (audit)", error)?,
        }
        Ok(checkup)
    }

    async fn examined(&self, mend: bool, checkup: &mut Checkup) -> Result<(), Error> {
        // Read-only, so it also answers where a server refuses writes. A wrong type or count is for the audit to find.
        let mut stats = self.stats().await;
        if let Err(error) = &stats
            && error.is_retryable()
        {
            return Err(error.clone());
        }
        if stats.as_ref().is_ok_and(is_late) {
            // The nodes may have stood still with the server: the next beat tells.
            tokio::time::sleep(BEAT).await;
            stats = self.stats().await;
        }
        let mut frame = self.verify(false).await;
        let is_silent = |frame: &Result<(bool, Vec<Raw>), Error>| {
            frame
                .as_ref()
                .is_ok_and(|(_, found)| found.iter().any(|one| one.kind == "silent"))
        };
        if is_silent(&frame) {
            tokio::time::sleep(BEAT).await;
            frame = self.verify(false).await;
        }
        if let Ok(stats) = &stats {
            checkup.deliveries(self.name(), stats, is_silent(&frame));
        }
        let (mut exists, mut found) = frame?;
        if mend && !found.is_empty() {
            (exists, found) = self.verify(true).await?;
        }
        for raw in found {
            checkup.found(self.finding(raw));
        }
        checkup.fact("exists", exists);
        for part in PARTS {
            let (mut cursor, mut looked) = ("0".to_owned(), 0);
            loop {
                let word: &[u8] = if mend { b"1" } else { b"" };
                let args = [part.as_bytes(), cursor.as_bytes(), STEP.as_bytes(), word];
                let mut reply = self.call(Verb::Audit, &args, Repeat::Harmless).await?;
                cursor = reply.body.text()?;
                looked += reply.body.count()?;
                for raw in raws(&mut reply.body)? {
                    checkup.found(self.finding(raw));
                }
                if cursor == "0" {
                    break;
                }
            }
            checkup.fact(part, looked);
        }
        if let Err(error) = stats
            && checkup.findings.is_empty()
        {
            checkup.unchecked.push(Unchecked {
                what: "whether messages are delivered (stats)",
                why: error.to_string(),
            });
        }
        Ok(())
    }

    /// Whether the queue exists, and what is wrong with its frame.
    async fn verify(&self, mend: bool) -> Result<(bool, Vec<Raw>), Error> {
        let word: &[u8] = if mend { b"1" } else { b"" };
        let mut reply = self.call(Verb::Verify, &[word], Repeat::Harmless).await?;
        Ok((!reply.header.incarnation.is_empty(), raws(&mut reply.body)?))
    }

    /// Names the keys that are somebody else's.
    async fn strangers(&self, checkup: &mut Checkup) -> Result<(), Error> {
        // A foreign wake-up list stops no call; `verify` finds it.
        for (key, due) in self.partition().keys().typed().take(self.keys().len()) {
            let kind = self.control().type_of(key).await;
            let Some(kind) = checkup.allowed("types of the keys (TYPE)", kind)? else {
                return Ok(());
            };
            if kind != due && kind != "none" {
                let problem = format!("{key} is a {kind}, not a {due}: somebody else wrote it");
                let consequence = "calls that need it are refused with WRONGTYPE";
                let remedy = redis_cli(&format!("RENAME {} ELSEWHERE", shell_word(key.as_bytes())));
                checkup.wrong("type", key, problem, consequence, remedy);
            }
        }
        Ok(())
    }

    fn finding(&self, raw: Raw) -> Finding {
        let name = self.name().as_bytes();
        let repair = if raw.mended {
            String::new()
        } else {
            dueq("doctor --repair", &[name])
        };
        let (detail, subject) = (raw.detail, String::from_utf8_lossy(&raw.what).into_owned());
        // What is left to do once it is mended.
        let then = |rest: String| {
            if raw.mended {
                rest
            } else {
                format!("{repair}; then {rest}")
            }
        };
        let (code, problem, consequence, remedy) = match raw.kind.as_str() {
            "sentinel" => (
                "sentinel",
                format!("{subject} has lost its sentinel"),
                "a slot migration stalls every call; among the ready, a message stands in for it and is not delivered",
                repair,
            ),
            "meta" if subject == "layout" => (
                "meta",
                "meta has no layout, and other keys of the queue are there".to_owned(),
                "to all clients the queue does not exist: nothing is delivered until the next push",
                repair,
            ),
            "meta" if subject == "test" => (
                "meta",
                "meta has the field test: the queue is for tests".to_owned(),
                "whoever may call its scripts may bring a clock of his own: messages come early, leases run out",
                repair,
            ),
            "meta" => (
                "meta",
                format!("{subject} in meta is {detail:?}"),
                "scripts that read it stop, some of them halfway",
                repair,
            ),
            "listpack" => (
                "listpack",
                format!("{subject} is a listpack"),
                "each write scans all of it",
                format!(
                    "{repair}; for queues to come: {}, and the same for hash-",
                    redis_cli("CONFIG SET zset-max-listpack-value 64")
                ),
            ),
            "wake" => (
                "wake",
                format!("{subject} is no list: somebody else wrote it"),
                "nobody is woken: messages are up to a second late",
                redis_cli(&format!("RENAME {} ELSEWHERE", shell_word(&raw.what))),
            ),
            "silent" => (
                "silent",
                format!(
                    "a message has been due for {detail} ms, the wake-up list is empty, and no worker beats"
                ),
                "a client that waits for the wake-up list is not woken",
                then(format!("start a worker: {}", dueq("work", &[name]))),
            ),
            "window" => (
                "window",
                format!("{detail} messages are ready, more than 1,000"),
                "cancel and reschedule of ready messages are slow until they are claimed",
                dueq("work", &[name]),
            ),
            "entry" => (
                "entry",
                format!("{subject:?} among the ready is no entry"),
                "a claim drops it",
                repair,
            ),
            "hollow" => (
                "hollow",
                format!("it is {detail}, and has no payload"),
                "it is lost: when it is due it is dropped without a word",
                then("push it again, if it was not handled".to_owned()),
            ),
            "unclaimed" => (
                "unclaimed",
                "it is leased, and no token belongs to its lease".to_owned(),
                "no handler can settle it, and cancel takes it for a ready one",
                repair,
            ),
            "unleased" => (
                "unleased",
                "it has a claim without a lease".to_owned(),
                "if its handler dies it is never taken back",
                repair,
            ),
            "unmarked" => (
                "unmarked",
                "it has a lease of its own, and its claim does not say so".to_owned(),
                "when it is settled that lease stays, and is taken back for it",
                repair,
            ),
            "claim" => (
                "claim",
                format!("what a claim left beside its ids does not fit them: {detail}"),
                "if its handlers die, some messages are never taken back; or it stays for ever",
                repair,
            ),
            "doubled" => (
                "doubled",
                format!("it is in more than one state: {detail}"),
                "it may be delivered twice, or after it was acked or cancelled",
                repair,
            ),
            "unplaced" => (
                "unplaced",
                "its payload is there, and it is in no state".to_owned(),
                "it is never delivered, and cannot be pushed again",
                then(format!(
                    "it is dead: {}, if it was not handled",
                    dueq("requeue", &[name, &raw.what])
                )),
            ),
            "score" => (
                "score",
                format!("it is {detail}, which is no time"),
                "it may never be delivered, taken back or trimmed",
                repair,
            ),
            "attrs" if detail == "absent" => (
                "attrs",
                "it has attempts or options, and no payload".to_owned(),
                "a new message of this id would inherit them",
                repair,
            ),
            "attrs" => (
                "attrs",
                "its attempts and options cannot be read".to_owned(),
                "they count as none",
                repair,
            ),
            _ => (
                "other",
                format!("{} {detail}", raw.kind),
                "a newer release knows",
                "use a newer dueq".to_owned(),
            ),
        };
        Finding {
            code,
            subject: raw.what,
            problem,
            consequence,
            remedy,
            mended: raw.mended,
        }
    }
}

pub(crate) fn raws(body: &mut Body) -> Result<Vec<Raw>, Error> {
    let mut items = body.parts()?;
    let mut raws = Vec::with_capacity(items.len());
    while !items.is_empty() {
        let mut item = items.parts()?;
        raws.push(Raw {
            kind: item.text()?,
            what: item.bytes()?,
            detail: item.text()?,
            mended: item.integer()? == 1,
        });
    }
    Ok(raws)
}
