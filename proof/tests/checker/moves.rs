//! Messages that move between partitions: what leaves one arrives once in the other, or comes back.

use dueq_proof::check::{Kind, Verdict};
use dueq_proof::history::{Answer, Call, Event, LeftItem, MovedItem, Phase, Role, State, Verb};

use crate::story::{Story, assert_clean, assert_has, push};

/// By the map it leaves `q/9` for `q/3`.
const ID: &str = "123456789";
const NUMBER: u64 = 77;
const SUM: u64 = 5;

/// A queue that changes its partitions. Each partition has a `seq` of its own.
struct Change {
    story: Story,
    seqs: [u64; 2],
}

impl Change {
    /// A message that is due in a minute is in `q/9`.
    fn new() -> Self {
        let mut story = Story::new();
        for map in ["7|- 3 5 9|- 3 5 9", "8|- 3 5 9|- 3"] {
            let (queue, map) = ("q".into(), map.into());
            story.write(Event::Map { queue, map });
        }
        (story.queue, story.epoch) = ("q/9", 7);
        story.push(ID, "+60000", "CREATED");
        (story.epoch, story.probes) = (8, true);
        let seqs = [story.seq, 0];
        Self { story, seqs }
    }

    fn at(&mut self, partition: &'static str) -> &mut Story {
        let place = |name: &str| usize::from(name != "q/9");
        self.seqs[place(self.story.queue)] = self.story.seq;
        (self.story.queue, self.story.seq) = (partition, self.seqs[place(partition)]);
        self.story.probes = partition == "q/9";
        &mut self.story
    }

    fn depart(&mut self, fate: &str, is_new: bool, items: Vec<MovedItem>) -> &mut Self {
        let (fate, ids) = (fate.to_owned(), vec![ID.to_owned()]);
        let number = if items.is_empty() { 0 } else { NUMBER };
        let changed = is_new || !fate.is_empty();
        let (tag, sum) = ("3".to_owned(), SUM);
        let answer = Answer::Departed {
            number,
            is_new,
            tag,
            sum,
            items,
        };
        self.at("q/9")
            .call(Call::Depart { fate, ids }, answer, changed);
        self
    }

    fn departs(&mut self) -> &mut Self {
        self.depart("", true, vec![item(60_000)])
    }

    fn arrive(&mut self, sum: u64, said: &str) -> &mut Self {
        let (from, number) = ("9".to_owned(), NUMBER);
        let changed = !matches!(said, "APPLIED 0");
        let call = Call::Arrive { from, number, sum };
        let answer = Answer::Other(vec![said.to_owned()]);
        self.at("q/3").call(call, answer, changed);
        self
    }

    fn arrives(&mut self) -> &mut Self {
        self.arrive(SUM, "APPLIED 1")
    }

    /// The verdict if the message remains in this partition; in none if it is empty.
    fn left(&mut self, partition: &str) -> Verdict {
        for queue in ["q", "q/3", "q/9"] {
            let item = LeftItem(ID.into(), Story::server(60_000), 0, 0);
            let items = if queue == partition {
                vec![item]
            } else {
                Vec::new()
            };
            let (queue, state) = (queue.into(), State::Scheduled);
            self.story.write(Event::Left {
                queue,
                state,
                items,
            });
        }
        self.story.verdict()
    }

    #[track_caller]
    fn has(&mut self, partition: &str, kind: Kind) {
        let found = self.left(partition);
        assert!(found.count(kind) > 0, "{:#?}", found.examples);
    }
}

fn item(due_ms: u64) -> MovedItem {
    let due_ms = Story::server(due_ms);
    MovedItem(ID.into(), format!("IS scheduled {due_ms} 0 0 1 100"), 0, 0)
}

#[test]
fn a_message_moves() {
    let mut change = Change::new();
    let verdict = change.departs().arrives().left("q/3");
    assert_clean(&verdict);
    assert_eq!((verdict.moves.batches, verdict.moves.messages), (1, 1));
    let mut change = Change::new();
    let story = change.departs().arrives().at("q/3").at(60_000);
    let token = story.claim(ID, 60_000, 1);
    story.ack(ID, &token);
    assert_clean(&change.left(""));
    Change::new().departs().has("", Kind::Lost);
    Change::new().departs().arrives().has("", Kind::Lost);
}

#[test]
fn a_message_that_left_is_not_there() {
    let mut change = Change::new();
    change
        .departs()
        .arrives()
        .at("q/9")
        .at(60_000)
        .claim(ID, 60_000, 1);
    change.has("q/3", Kind::InTwoPartitions);
    let mut change = Change::new();
    change.departs().at("q/9").cancel(ID, "MOVING");
    assert_clean(&change.arrives().left("q/3"));
    let mut change = Change::new();
    change.at("q/9").cancel(ID, "AWAY");
    change.has("q/9", Kind::Lost);
}

#[test]
fn a_message_leaves_and_arrives_as_it_is() {
    let departs = |item: MovedItem| {
        let mut change = Change::new();
        change.depart("", true, vec![item]).arrives();
        change.left("q/3").count(Kind::Miscounted) + change.left("q/3").count(Kind::WrongDue)
    };
    let mut charged = item(60_000);
    charged.1 = charged.1.replace(" 0 0 1 ", " 1 0 1 ");
    assert_eq!([departs(item(60_000)), departs(charged).min(1)], [0, 1]);
    assert!(departs(item(50_000)) > 0);
    Change::new()
        .departs()
        .arrive(SUM + 1, "APPLIED 1")
        .has("q/3", Kind::Contradictions);
}

#[test]
fn a_batch_arrives_once() {
    let mut change = Change::new();
    change.departs().arrives().arrive(SUM, "APPLIED 0");
    assert_clean(&change.left("q/3"));
    Change::new()
        .departs()
        .arrives()
        .arrives()
        .has("q/3", Kind::InTwoPartitions);
    // It says that it has the batch, and no call brought it.
    Change::new()
        .departs()
        .arrive(SUM, "APPLIED 0")
        .has("", Kind::Lost);
}

#[test]
fn a_batch_that_is_void_comes_back() {
    let void = format!("VOID {NUMBER}");
    let mut change = Change::new();
    change
        .departs()
        .arrive(0, &void)
        .depart("back=77", false, Vec::new());
    let verdict = change.left("q/9");
    // The map has not changed back: that it is left there is another matter.
    assert_eq!(verdict.count(Kind::Lost), 0, "{:#?}", verdict.examples);
    assert_eq!(verdict.moves.returned, 1);
    Change::new().departs().arrive(0, &void).has("", Kind::Lost);
    let mut change = Change::new();
    change
        .departs()
        .arrives()
        .depart("back=77", false, Vec::new());
    change.has("q/3", Kind::InTwoPartitions);
}

#[test]
fn calls_without_an_answer_may_have_moved_a_message() {
    let left = |partition| {
        let mut change = Change::new();
        let (fate, ids) = (String::new(), vec![ID.to_owned()]);
        change
            .at("q/9")
            .unanswered(Call::Depart { fate, ids }, true);
        change.depart("", false, vec![item(60_000)]);
        let (from, number, sum) = ("9".to_owned(), NUMBER, SUM);
        let arrive = Call::Arrive { from, number, sum };
        change.at("q/3").unanswered(arrive, true);
        change.arrive(SUM, "APPLIED 0").left(partition)
    };
    assert_clean(&left("q/3"));
    assert_has(&left(""), Kind::Lost);
    // No answer shows the batch: nobody can bring it to its end.
    let mut change = Change::new();
    let (fate, ids) = (String::new(), vec![ID.to_owned()]);
    change
        .at("q/9")
        .unanswered(Call::Depart { fate, ids }, true);
    change.has("", Kind::Lost);
}

#[test]
fn a_push_stores_its_message_in_one_partition() {
    // The second is a repetition, or another push.
    let pushed = |answered: bool, until: u64| {
        let mut story = Story::new();
        story.queue = "q/9";
        let first = push(ID, "+60000", Story::server(9_000), "");
        match answered {
            true => story.push_with(ID, "+60000", Story::server(9_000), "", "CREATED"),
            false => story.unanswered(first, true),
        };
        let token = story.at(60_000).claim(ID, 60_000, 1);
        story.ack(ID, &token);
        (story.queue, story.seq) = ("q/3", 0);
        story.push_with(ID, "+60000", until, "", "CREATED");
        let token = story.at(120_000).claim(ID, 120_000, 1);
        story.ack(ID, &token);
        story.verdict().count(Kind::UnexplainedDuplicates)
    };
    let (same, other) = (Story::server(9_000), Story::server(9_500));
    assert_eq!([pushed(true, same), pushed(true, other)], [1, 0]);
    assert_eq!([pushed(false, same), pushed(false, other)], [1, 0]);
}

#[test]
fn a_message_is_not_on_its_way_for_long_after_its_due_time() {
    let late = |ms: u64, fault: Option<&str>| {
        let mut change = Change::new();
        change.departs();
        if let Some(fault) = fault {
            for phase in [Phase::Begin, Phase::Trace, Phase::End] {
                change.at("q/9").at(59_000).fault(fault, 1, phase);
            }
        }
        change.at("q/3").at(ms);
        change.arrives().left("q/3").count(Kind::Late)
    };
    assert_eq!(late(64_000, None), 0);
    assert_eq!(late(66_000, None), 1);
    assert_eq!(late(66_000, Some("mover_kill")), 0);
    assert_eq!(late(66_000, Some("worker_kill")), 1);
    assert_eq!(late(78_000, Some("mover_kill")), 1);
}

#[test]
fn a_run_with_movers_moves_messages() {
    let mover = Story::of(Role::Mover);
    let mut story = Story::new();
    story.push("a", "+0", "CREATED").claim("a", 0, 1);
    let verdict = story.verdict_beside(&[&mover]);
    let doubt = "movers ran, and no message moved".to_owned();
    assert!(verdict.invalid_because.contains(&doubt), "{verdict:#?}");
    story.change(Verb::Cancel, "b", "", "ABSENT");
    assert!(!story.verdict().invalid_because.contains(&doubt));
}
