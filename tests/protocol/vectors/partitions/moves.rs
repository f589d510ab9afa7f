//! Callers and a mover at a queue whose partitions change: in every order of their calls, a message
//! is in one place, and each caller gets an answer that a queue of one partition could give.

use anyhow::{Context, Result, ensure};

use crate::queue::{HOUR, Queue, T0};
use crate::reply::{Reply, Text, words};

/// The id in question belongs to the home by the old tags, and to partition 17 by the new ones.
const ID: &str = "order:42";
const MAP: &str = "7|-|- 17";

/// What a caller does to the id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Push,
    PushWithWindow,
    Upsert,
    Cancel,
    Reschedule,
    Get,
}

const VERBS: [Verb; 6] = [
    Verb::Push,
    Verb::PushWithWindow,
    Verb::Upsert,
    Verb::Cancel,
    Verb::Reschedule,
    Verb::Get,
];

impl Verb {
    fn name(self) -> &'static str {
        match self {
            Self::Push | Self::PushWithWindow => "push",
            Self::Upsert => "upsert",
            Self::Cancel => "cancel",
            Self::Reschedule => "reschedule",
            Self::Get => "get",
        }
    }

    /// The arguments of the caller with this number.
    fn arguments(self, caller: u64) -> Vec<Text> {
        let (attempt, due) = (crate::queue::attempt(T0, caller), T0 + HOUR + caller);
        match self {
            Self::Push => words![attempt, ID, due, "payload", ""],
            Self::PushWithWindow => words![attempt, ID, due, "payload", "window=60000"],
            Self::Upsert => words![attempt, ID, due, "payload", "on_conflict=replace"],
            Self::Cancel => words!["", ID],
            Self::Reschedule => words![ID, due, ""],
            Self::Get => words![ID],
        }
    }

    /// The result of a call, in one line.
    fn result(self, reply: &Reply) -> Result<String> {
        if let Some(code) = reply.code() {
            return Ok(code.to_owned());
        }
        let part = reply.part(1)?.list()?;
        Ok(match self {
            Self::Get => match part.get(3) {
                Some(time) => format!("{:?} {time:?}", part[1]),
                None => "ABSENT".to_owned(),
            },
            _ => part.first().context("a result")?.text()?,
        })
    }
}

/// How the message is before the partitions change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Absent,
    Waiting,
    Windowed,
    Cancelled,
    Ended,
}

const BEFORE: [Before; 5] = [
    Before::Absent,
    Before::Waiting,
    Before::Windowed,
    Before::Cancelled,
    Before::Ended,
];

/// A queue whose message is in this state.
fn prepare(queue: &mut Queue, before: Before) -> Result<()> {
    queue.empty()?;
    queue.enter("17")?;
    queue.command(words!["HSET", "dueq:{q/17}:meta", "test", 1])?;
    queue.enter("-")?;
    queue.ok("configure", T0, words!["max_attempts", 3])?;
    let push = |due: u64, options: &str| {
        words![crate::queue::attempt(T0 - 1, 9), ID, due, "first", options]
    };
    match before {
        Before::Absent => {}
        Before::Waiting => drop(queue.ok("push", T0 - 1, push(T0 + HOUR, ""))?),
        Before::Windowed => drop(queue.ok("push", T0 - 1, push(T0 + HOUR, "window=60000"))?),
        Before::Cancelled => {
            queue.ok("push", T0 - 1, push(T0 + HOUR, ""))?;
            queue.ok("cancel", T0 - 1, words!["", ID])?;
        }
        Before::Ended => {
            queue.ok("push", T0 - 1, push(T0 - 1, "window=60000"))?;
            ensure!(queue.take(T0 - 1, 1, &crate::queue::token('a'))? == [ID]);
            queue.ok("ack", T0 - 1, words![crate::queue::token('a'), 1, ID])?;
        }
    }
    Ok(())
}

/// A call by the rules of docs/protocol/partitions, one script at a time.
struct Caller {
    verb: Verb,
    number: u64,
    at: &'static str,
    /// Whether the next call only looks.
    probes: bool,
    /// The result if no other partition has the message.
    remembered: Option<String>,
    result: Option<String>,
    /// How many scripts it has called; a caller that only waits does not end.
    calls: usize,
}

impl Caller {
    fn new(verb: Verb, number: u64) -> Self {
        Self {
            verb,
            number,
            at: "-",
            probes: true,
            remembered: None,
            result: None,
            calls: 0,
        }
    }

    fn step(&mut self, queue: &mut Queue) -> Result<()> {
        self.calls += 1;
        queue.enter(self.at)?;
        let fence = format!("{}7 {T0}", if self.probes { 'p' } else { 'm' });
        let reply = queue.call(self.verb.name(), fence, self.verb.arguments(self.number))?;
        let result = self.verb.result(&reply)?;
        let is_away = self.probes
            && (result.starts_with("AWAY") || self.verb == Verb::Get && result == "ABSENT");
        if result == "MOVING" {
            let (verb, number, calls) = (self.verb, self.number, self.calls);
            *self = Self {
                calls,
                ..Self::new(verb, number)
            };
        } else if is_away && self.at == "-" {
            self.at = "17";
            self.remembered = result.strip_prefix("AWAY ").map(str::to_owned);
            self.probes = self.remembered.is_some();
        } else if is_away {
            self.result = self.remembered.take().or(Some(result));
        } else {
            self.result = Some(result);
        }
        Ok(())
    }
}

/// A mover of the home: it sends what it finds until nothing is left, and may lose its memory.
#[derive(Default)]
struct Mover {
    /// The batch that arrived last, or the one that never will.
    verdict: String,
    after: u64,
    batch: Option<(u64, Text)>,
}

impl Mover {
    fn step(&mut self, queue: &mut Queue) -> Result<()> {
        let fence = format!("m7 {T0}");
        let Some((number, batch)) = self.batch.take() else {
            queue.enter("-")?;
            let names = words![
                &self.verdict,
                self.after,
                "17",
                5_000,
                ID,
                format!("\u{5}{ID}")
            ];
            let reply = queue.ok("depart", fence, names)?;
            let number = reply.part(1)?.int()? as u64;
            if number > 0 {
                self.batch = Some((number, reply.part(4)?.bytes()?.clone()));
            }
            return Ok(());
        };
        queue.enter("17")?;
        let reply = queue.ok("arrive", fence, words!["-", number, batch])?;
        let result = reply.part(1)?.text()?;
        self.verdict = match result.split_once(' ') {
            Some(("APPLIED", _)) => format!("done={number}"),
            Some(("VOID", last)) => {
                self.after = last.parse()?;
                format!("back={number}")
            }
            _ => anyhow::bail!("{result}"),
        };
        Ok(())
    }
}

/// The places in which the message is, with its due time.
fn places(queue: &mut Queue) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for key in ["dueq:{q}", "dueq:{q/17}"] {
        let due = queue.command(words!["ZSCORE", format!("{key}:scheduled"), ID])?;
        if !matches!(due, Reply::Nil) {
            found.push((key.to_owned(), due.text()?));
        }
    }
    Ok(found)
}

/// What two callers get from a queue of one partition, one after the other, and the due time of the
/// message then.
type Outcome = (Vec<(u64, String)>, Option<String>);

fn alone(queue: &mut Queue, before: Before, order: &[(u64, Verb)]) -> Result<Outcome> {
    prepare(queue, before)?;
    let mut results = Vec::new();
    for (number, verb) in order {
        let reply = queue.call(verb.name(), T0, verb.arguments(*number))?;
        results.push((*number, verb.result(&reply)?));
    }
    results.sort_unstable();
    let due = places(queue)?.pop().map(|(_, due)| due);
    Ok((results, due))
}

/// Every order of two callers' calls and the mover's, as numbers 0, 1 and 2 that say who is next.
fn orders() -> Vec<Vec<u8>> {
    let mut all = vec![Vec::new()];
    for _ in 0..LENGTH {
        all = all
            .into_iter()
            .flat_map(|order: Vec<u8>| (0..3).map(move |who| [order.clone(), vec![who]].concat()))
            .filter(|order| {
                [(0, 3), (1, 3), (2, 4)]
                    .iter()
                    .all(|(who, most)| order.iter().filter(|one| one == &who).count() <= *most)
            })
            .collect();
    }
    all
}

/// After this many calls the rest goes on in turn.
const LENGTH: usize = 6;

#[test]
fn callers_of_a_moving_message_get_what_one_partition_answers() -> Result<()> {
    let mut queue = Queue::start()?;
    let orders = orders();
    let mut random = fastrand::Rng::with_seed(11);
    let mut moved = 0;
    for before in BEFORE {
        for (first, second) in VERBS
            .iter()
            .flat_map(|one| VERBS.map(|other| (*one, other)))
        {
            let expected = [
                alone(&mut queue, before, &[(1, first), (2, second)])?,
                alone(&mut queue, before, &[(2, second), (1, first)])?,
            ];
            for _ in 0..RUNS {
                let order = random.choice(&orders).context("an order")?;
                prepare(&mut queue, before)?;
                queue.ok("remap", T0, words!["close", 0, MAP])?;
                queue.enter("17")?;
                queue.ok("remap", T0, words!["forward", MAP])?;
                let mut callers = [Caller::new(first, 1), Caller::new(second, 2)];
                let mut mover = Mover::default();
                let forgets = random.usize(0..12);
                let mut allowed = [true; 2];
                let turns = order.iter().copied().chain((0..40).map(|turn| turn % 3));
                for (at, who) in turns.enumerate() {
                    if at == forgets {
                        mover = Mover::default();
                    }
                    match callers.get_mut(who as usize) {
                        Some(caller) if caller.result.is_none() => caller.step(&mut queue)?,
                        Some(_) => {}
                        None => mover.step(&mut queue)?,
                    }
                    // A call that ended before the other began came first.
                    for (one, other) in [(0, 1), (1, 0)] {
                        if callers[one].result.is_some() && callers[other].calls == 0 {
                            allowed = [one == 0, one == 1];
                        }
                    }
                    let found = places(&mut queue)?;
                    ensure!(
                        found.len() < 2,
                        "{before:?} {first:?} {second:?} {order:?}: {found:?}"
                    );
                }
                let results = callers.map(|caller| {
                    // A push forgets the cancel at the old partition before it creates the message:
                    // in between, that there is nothing to cancel is the answer.
                    let is_between = before == Before::Cancelled && caller.verb == Verb::Cancel;
                    let result = caller.result.unwrap_or_default();
                    let result = match &*result {
                        "ABSENT" if is_between => "CANCELLED".to_owned(),
                        _ => result,
                    };
                    (caller.number, result)
                });
                let mut found = places(&mut queue)?;
                moved += usize::from(found.iter().any(|(key, _)| key.ends_with("17}")));
                let outcome = (results.to_vec(), found.pop().map(|(_, due)| due));
                ensure!(
                    (0..2).any(|first| allowed[first] && expected[first] == outcome),
                    "{before:?}, {first:?} and {second:?} in the order {order:?}, mover forgets at {forgets}:\n\
                     {outcome:?}\nnot one of {expected:#?}"
                );
            }
        }
    }
    ensure!(moved > 0, "nothing moved");
    Ok(())
}

/// Random orders of each pair of calls and each state.
const RUNS: usize = 12;

/// A queue that changes, with partition 17 beside its home.
fn changing() -> Result<Queue> {
    let mut queue = Queue::start()?;
    prepare(&mut queue, Before::Absent)?;
    queue.ok("remap", T0, words!["close", 0, MAP])?;
    queue.enter("17")?;
    queue.ok("remap", T0, words!["forward", MAP])?;
    queue.enter("-")?;
    Ok(queue)
}

fn fenced(now: u64) -> String {
    format!("m7 {now}")
}

/// Pushes a message at the home before the partitions change.
fn push(queue: &mut Queue, id: &str, due: u64, options: &str) -> Result<()> {
    let pushed = queue.items("push", fenced(T0), words!["", id, due, id, options])?;
    ensure!(pushed == ["CREATED"], "{pushed:?}");
    Ok(())
}

/// Number, count and bytes of the batch that `depart` returns.
fn depart(queue: &mut Queue, verdict: &str, after: u64, ids: &[&str]) -> Result<(u64, i64, Text)> {
    queue.enter("-")?;
    let names = ids.iter().map(|id| Text::from(*id)).collect();
    let argv = [words![verdict, after, "17", 5_000], names].concat();
    let reply = queue.ok("depart", fenced(T0), argv)?;
    let number = reply.part(1)?.int()? as u64;
    Ok((
        number,
        reply.part(3)?.int()?,
        reply.part(4)?.bytes()?.clone(),
    ))
}

fn arrive(queue: &mut Queue, number: u64, batch: &Text) -> Result<String> {
    queue.enter("17")?;
    queue
        .ok("arrive", fenced(T0), words!["-", number, batch])?
        .part(1)?
        .text()
}

#[test]
fn a_batch_is_replied_until_it_is_decided() -> Result<()> {
    let mut queue = changing()?;
    for id in ["a", "b"] {
        push(&mut queue, id, T0 + HOUR, "")?;
    }
    let first = depart(&mut queue, "", 0, &["a"])?;
    ensure!((first.0, first.1) == (T0 * 1_000, 1), "{first:?}");
    // Neither a name nor a verdict about another batch makes a second one.
    for verdict in ["", "done=1", "back=1"] {
        ensure!(
            depart(&mut queue, verdict, 0, &["b"])? == first,
            "{verdict}"
        );
    }
    let back = depart(&mut queue, &format!("back={}", first.0), 0, &[])?;
    ensure!((back.0, back.1) == (0, 0), "{back:?}");
    ensure!(
        queue.items("push", fenced(T0), words!["", "a", "+1", "", ""])? == ["EXISTS scheduled"]
    );
    // At one time each number is larger than the last, and than what another partition knows.
    let second = depart(&mut queue, "", 0, &["a"])?;
    ensure!(second.0 == first.0 + 2, "what came back counts: {second:?}");
    ensure!(arrive(&mut queue, second.0, &second.2)? == "APPLIED 1");
    let third = depart(
        &mut queue,
        &format!("done={}", second.0),
        second.0 + 9,
        &["b"],
    )?;
    ensure!(third.0 == second.0 + 10, "{third:?}");
    ensure!(queue.items("push", fenced(T0), words!["", "a", "+1", "", ""])? == ["CREATED"]);
    Ok(())
}

#[test]
fn only_the_next_batch_arrives_and_only_once() -> Result<()> {
    let mut queue = changing()?;
    push(&mut queue, "a", T0 + HOUR, "")?;
    let (number, _, batch) = depart(&mut queue, "", 0, &["a"])?;
    ensure!(arrive(&mut queue, number, &batch)? == "APPLIED 1");
    queue.items("cancel", fenced(T0), words!["", "a"])?;
    ensure!(arrive(&mut queue, number, &batch)? == "APPLIED 0");
    ensure!(arrive(&mut queue, number, &"".into())? == "APPLIED 0");
    ensure!(arrive(&mut queue, number - 1, &batch)? == format!("VOID {number}"));
    ensure!(arrive(&mut queue, number + 2, &"".into())? == format!("VOID {}", number + 2));
    ensure!(
        arrive(&mut queue, number, &batch)? == "APPLIED 0",
        "it is known after later ones"
    );
    ensure!(arrive(&mut queue, number + 2, &batch)? == format!("VOID {}", number + 2));
    ensure!(arrive(&mut queue, number + 1, &batch)? == format!("VOID {}", number + 2));
    for later in 3..11 {
        arrive(&mut queue, number + later, &"".into())?;
    }
    let forgotten = arrive(&mut queue, number, &batch)?;
    ensure!(forgotten == format!("VOID {}", number + 10), "{forgotten}");
    ensure!(queue.items("cancel", fenced(T0), words!["", "a"])? == ["CANCELLED"]);
    ensure!(queue.state()?.messages.len() == 1, "a is gone");
    Ok(())
}

#[test]
fn what_is_due_soon_or_leased_stays() -> Result<()> {
    let mut queue = changing()?;
    let dues = [
        ("overdue", T0 - 1_001),
        ("ready", T0 - 1_002),
        ("leased", T0 - 1_003),
        ("dead", T0 - 1_004),
        ("late", T0 - 1_000),
        ("soon", T0 + 5_000),
        ("later", T0 + 5_001),
    ];
    for (id, due) in dues {
        push(&mut queue, id, due, "")?;
    }
    for (id, mark) in [("dead", 'd'), ("leased", 'l')] {
        ensure!(queue.take(T0, 1, &crate::queue::token(mark))? == [id]);
    }
    queue.items("bury", T0, words!["dead", crate::queue::token('d'), "why"])?;
    queue.ok("promote", T0, words![1])?;
    let names = dues.map(|(id, _)| id);
    let (number, count, batch) = depart(&mut queue, "", 0, &names)?;
    ensure!(count == 4);
    ensure!(arrive(&mut queue, number, &batch)? == "APPLIED 4");
    for (id, due) in dues {
        let moved = ["overdue", "ready", "dead", "later"].contains(&id);
        queue.enter(if moved { "17" } else { "-" })?;
        let found = queue.ok("get", fenced(T0), words![id])?;
        let found = found.part(1)?.list()?;
        ensure!(!found.is_empty(), "{id}");
        let (state, time) = match id {
            "dead" => ("dead", T0),
            _ => ("scheduled", due),
        };
        ensure!(!moved || found[1] == state.into(), "{id}: {found:?}");
        ensure!(
            id == "leased" || found[3] == Reply::Int(time as i64),
            "{id}: {found:?}"
        );
    }
    Ok(())
}

/// Attempts, errors, options and windows come along, and work at the new place.
#[test]
fn a_message_arrives_as_it_was() -> Result<()> {
    let mut queue = changing()?;
    let long = "x".repeat(5_000);
    push(
        &mut queue,
        "expires",
        T0 + 6_000,
        "expires=+10 on_expire=drop window=3600000",
    )?;
    push(&mut queue, ID, T0 - 2_000, "max_attempts=7")?;
    queue.items("push", fenced(T0), words!["", "long", T0 + HOUR, &long, ""])?;
    ensure!(queue.take(T0, 1, &crate::queue::token('a'))? == [ID]);
    queue.items(
        "retry",
        T0,
        words![ID, crate::queue::token('a'), 6_000, "no bank"],
    )?;
    let (number, _, batch) = depart(&mut queue, "", 0, &["expires", ID, "long"])?;
    depart(&mut queue, &format!("done={number}"), 0, &[])?;
    ensure!(arrive(&mut queue, number, &batch)? == "APPLIED 3");
    let found = queue.ok("get", fenced(T0), words![ID])?;
    let text = format!("{found:?}");
    ensure!(
        text.contains("max_attempts=7") && text.contains("no bank"),
        "{text}"
    );
    ensure!(
        found.part(1)?.list()?[5] == Reply::Int(1),
        "failures: {text}"
    );
    let meta = queue.state()?.meta;
    ensure!(
        meta.get(&"largest_payload_bytes".into()) == Some(&"8192".into()),
        "{meta:?}"
    );
    // It expires there, and its window is remembered.
    ensure!(crate::vectors::claimed(&mut queue, T0 + 6_011, 9)? == [ID]);
    let pushed = queue.items(
        "push",
        fenced(T0),
        words!["", "expires", "+1", "", "window=1"],
    )?;
    ensure!(pushed[0].starts_with("REMEMBERED"), "{pushed:?}");
    queue.enter("-")?;
    let pushed = queue.items("push", fenced(T0), words!["", "expires", "+1", "", ""])?;
    ensure!(pushed == ["CREATED"], "its window has left: {pushed:?}");
    Ok(())
}

/// A window outlives its message, and its owner may have moved.
#[test]
fn windows_and_outcomes_move_by_their_names() -> Result<()> {
    let mut queue = changing()?;
    push(&mut queue, "a", T0, "window=3600000")?;
    ensure!(queue.take(T0, 1, &crate::queue::token('a'))? == ["a"]);
    queue.items("ack", T0, words![crate::queue::token('a'), 1, "a"])?;
    let names: Vec<String> = queue
        .state()?
        .recent
        .iter()
        .map(|(name, _)| name.text())
        .collect();
    let names: Vec<&str> = names
        .iter()
        .map(String::as_str)
        .filter(|name| name.starts_with(['\u{5}', '\u{6}']))
        .collect();
    ensure!(names.len() == 2, "{names:?}");
    let (number, count, batch) = depart(&mut queue, "", 0, &names)?;
    ensure!(count == 0, "no message");
    let probed = queue.items("push", format!("p7 {T0}"), words!["", "a", "+1", "", ""])?;
    ensure!(probed == ["MOVING"], "{probed:?}");
    ensure!(arrive(&mut queue, number, &batch)? == "APPLIED 0");
    let pushed = queue.items("push", fenced(T0), words!["", "a", "+1", "", ""])?;
    ensure!(
        pushed == [format!("REMEMBERED {}", T0 + HOUR)],
        "{pushed:?}"
    );
    let end = queue.ok("get", fenced(T0), words!["a"])?;
    ensure!(*end.part(2)? == "finished".into(), "{end:?}");
    Ok(())
}

#[test]
fn a_partition_is_not_removed_while_a_batch_is_on_its_way() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.enter("17")?;
    queue.ok("remap", T0, words!["forward", "7|- 17|-"])?;
    push(&mut queue, "a", T0 + HOUR, "")?;
    let reply = queue.ok("depart", fenced(T0), words!["", 0, "-", 5_000, "a"])?;
    let number = reply.part(1)?.int()?;
    let removed = queue.ok("remap", T0, words!["remove", 7])?;
    ensure!(*removed.part(1)? == "HAS 1".into(), "{removed:?}");
    queue.ok(
        "depart",
        fenced(T0),
        words![format!("done={number}"), 0, "-", 5_000],
    )?;
    let removed = queue.ok("remap", T0, words!["remove", 7])?;
    ensure!(*removed.part(1)? == "DONE".into(), "{removed:?}");
    Ok(())
}

/// After a failover a partition may have what it sent; what arrived since is newer.
#[test]
fn an_arriving_message_replaces_none() -> Result<()> {
    let mut queue = changing()?;
    push(&mut queue, "a", T0 + HOUR, "")?;
    let (number, _, batch) = depart(&mut queue, "", 0, &["a"])?;
    queue.enter("17")?;
    let own = words!["", "a", T0 + HOUR, "own", ""];
    ensure!(queue.items("push", fenced(T0), own)? == ["CREATED"]);
    let before = queue.state()?.messages;
    ensure!(arrive(&mut queue, number, &batch)? == "APPLIED 0");
    ensure!(queue.state()?.messages == before);
    Ok(())
}

/// What a probe does at the old partition is the last that it hears of the id.
#[test]
fn a_probe_ends_the_memory_of_a_cancel_but_prolongs_none() -> Result<()> {
    let mut queue = Queue::start()?;
    prepare(&mut queue, Before::Cancelled)?;
    queue.ok("remap", T0, words!["close", 0, MAP])?;
    let memory = queue.state()?.recent;
    let probe = |now: u64| format!("p7 {now}");
    let cancelled = queue.items("cancel", probe(T0 + 5_000), words!["", ID])?;
    ensure!(cancelled == ["AWAY CANCELLED"], "{cancelled:?}");
    ensure!(queue.state()?.recent == memory, "nothing was prolonged");
    let pushed = queue.items("push", probe(T0 + 5_001), words!["", ID, "+1", "", ""])?;
    ensure!(pushed == ["AWAY"], "{pushed:?}");
    let cancelled = queue.items("cancel", probe(T0 + 5_002), words!["", ID])?;
    ensure!(
        cancelled == ["AWAY"],
        "the push came after the cancel: {cancelled:?}"
    );
    Ok(())
}

/// Members of the deduplication memory stay after their time until they are trimmed.
#[test]
fn an_arriving_window_replaces_one_that_has_ended_by_time_only() -> Result<()> {
    for (stored, expected) in [(T0 - 1, T0 + HOUR), (T0 + 5, T0 + 5), (0, 0)] {
        let mut queue = changing()?;
        push(&mut queue, "a", T0 + HOUR, "window=3600000")?;
        let (number, _, batch) = depart(&mut queue, "", 0, &["a"])?;
        queue.command(words!["ZADD", "dueq:{q/17}:recent", stored, "\u{5}a"])?;
        arrive(&mut queue, number, &batch)?;
        let found = queue.command(words!["ZSCORE", "dueq:{q/17}:recent", "\u{5}a"])?;
        ensure!(found.text()? == expected.to_string(), "{stored}: {found:?}");
    }
    Ok(())
}
