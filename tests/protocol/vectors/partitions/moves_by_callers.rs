//! Callers and a mover at a queue whose partitions change: in every order of their calls, a message
//! is in one place, and each caller gets an answer that a queue of one partition could give.

use anyhow::{Context, Result, ensure};

use crate::queue::{HOUR, Queue, T0};
use crate::reply::{Reply, Text, words};

/// The id in question belongs to the home by the old tags, and to partition 17 by the new ones.
pub(crate) const ID: &str = "order:42";
pub(crate) const MAP: &str = "7|-|- 17";

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
pub(crate) enum Before {
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
pub(crate) fn prepare(queue: &mut Queue, before: Before) -> Result<()> {
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
