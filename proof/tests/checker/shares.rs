//! Histories of workers that start their grants and keep to the shares of their queues, or do not.

use dueq_proof::check::Kind;
use dueq_proof::history::{BY_HAND, ClaimedItem, Event, Role, Share, State, Verb};

use crate::story::Story;

const QUEUE: &str = "q";

/// A worker that serves the queue of the story, and another queue with a reserve.
struct Worker {
    story: Story,
    open: Vec<(String, String)>,
    next: u32,
}

impl Worker {
    fn new(concurrency: u32, reserve_of_other: u32, max: u32) -> Self {
        let share = |queue: &str, reserve, max| Share {
            queue: queue.into(),
            weight: 1,
            reserve,
            max,
        };
        let mut story = Story::new();
        story.serves(
            concurrency,
            vec![
                share(QUEUE, 0, max),
                share("other", reserve_of_other, concurrency),
            ],
        );
        let (open, next) = (Vec::new(), 0);
        Self { story, open, next }
    }

    /// The worker claims a message, and its handler starts.
    fn start(&mut self, by_hand: bool) {
        self.next += 1;
        let id = format!("m{}", self.next);
        self.story.push(&id, "+0", "CREATED");
        let ms = u64::from(self.next) * 5;
        let due_ms = Story::server(ms - 5);
        let item = ClaimedItem(id.clone(), 1, due_ms, 1, 100, String::new());
        let token = self.story.at(ms).grant(&[item]);
        self.story.write(Event::Started {
            by_hand,
            queue: QUEUE.into(),
            id: id.clone(),
            version: 1,
            attempt: 1,
            due_ms,
            started_us: 0,
        });
        self.open.push((id, token));
    }

    /// Ends the handler that started first.
    fn end(&mut self, wants: &str) {
        let (id, token) = self.open.remove(0);
        self.story.write(Event::Ended {
            queue: QUEUE.into(),
            id: id.clone(),
            wants: wants.into(),
        });
        self.story.ack(&id, &token);
    }

    /// Runs this number of handlers at once, and ends them.
    fn run(mut self, handlers: u32) -> Story {
        for _ in 0..handlers {
            self.start(false);
        }
        while !self.open.is_empty() {
            self.end("ack");
        }
        self.story
    }
}

#[test]
fn worker_above_its_concurrency_is_found() {
    Worker::new(3, 0, 100).run(3).is_clean();
    Worker::new(3, 0, 100).run(4).has(Kind::SharesBroken);
}

#[test]
fn queue_with_more_handlers_than_its_max_is_found() {
    Worker::new(10, 0, 2).run(2).is_clean();
    Worker::new(10, 0, 2).run(3).has(Kind::SharesBroken);
}

#[test]
fn queue_that_uses_the_reserve_of_another_is_found() {
    Worker::new(4, 2, 100).run(2).is_clean();
    Worker::new(4, 2, 100).run(3).has(Kind::SharesBroken);
}

#[test]
fn ended_handlers_do_not_count_as_running() {
    let mut worker = Worker::new(4, 2, 1);
    for _ in 0..5 {
        worker.start(false);
        worker.end("ack");
    }
    worker.story.is_clean();
    assert_eq!(worker.story.verdict().shares_judged, 5);
}

#[test]
fn messages_claimed_by_hand_take_no_handler() {
    let mut worker = Worker::new(4, 2, 1);
    for _ in 0..5 {
        worker.start(true);
    }
    while !worker.open.is_empty() {
        worker.end(BY_HAND);
    }
    worker.start(false);
    worker.end("ack");
    worker.story.is_clean();
}

#[test]
fn run_proves_nothing_about_a_worker_without_shares() {
    let run = |mut story: Story| {
        story.push("a", "+0", "CREATED");
        let token = story.at(5).claim("a", 0, 1);
        story.ack("a", &token).verdict()
    };
    assert!(run(Story::new()).valid);
    assert!(!run(Story::of(Role::Worker)).valid);
}

#[test]
fn a_grant_must_be_started_or_given_back() {
    let granted_at = |story: &mut Story, ms| {
        let item = |id: &str| ClaimedItem(id.into(), 1, Story::server(0), 1, 100, String::new());
        let (items, due) = (["a", "b"].map(item), Story::server(0).to_string());
        story.push("a", &due, "CREATED").push("b", &due, "CREATED");
        let token = story.at(ms).grant(&items);
        story.started("a", 1, 1, Story::server(0));
        story.ack("a", &token);
        token
    };
    let granted = |story: &mut Story| granted_at(story, 5);
    let mut story = Story::new();
    granted(&mut story);
    story.left_at(State::Scheduled, "b", Story::server(0), 1);
    story.ended().has(Kind::NeverStarted);
    let mut story = Story::new();
    let token = granted(&mut story);
    story
        .settle(Verb::Release, "b", &token, "OK")
        .left(State::Scheduled, &[("b", 0, 0)])
        .ended()
        .is_clean();
    // The process was killed at that moment.
    let mut story = Story::new();
    granted(&mut story);
    story
        .left_at(State::Scheduled, "b", Story::server(0), 1)
        .is_clean();
    // The process ran for a long time after the grant.
    let mut story = Story::new();
    granted(&mut story);
    story
        .at(60_000)
        .push("c", "+0", "CREATED")
        .left(State::Scheduled, &[("c", 0, 0)]);
    story
        .left_at(State::Scheduled, "b", Story::server(0), 1)
        .has(Kind::NeverStarted);
    // The claim waited for a connection, and its lease expired meanwhile.
    let waited = |ms: u64, is_first: bool| {
        let mut story = Story::new();
        story.serves_under(1_000);
        for answered_ms in [0, 1_010, 1_500] {
            story.at(answered_ms).other("stats", &[], &["0"]);
        }
        if !is_first {
            story.find_nothing(false);
        }
        granted_at(&mut story, ms);
        story.left_at(State::Scheduled, "b", Story::server(0), 1);
        story.ended();
        story
    };
    waited(2_000, true).is_clean();
    waited(2_000, false).has(Kind::NeverStarted);
    waited(2_020, true).has(Kind::NeverStarted);
}
