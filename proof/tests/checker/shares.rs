//! Histories of workers whose handlers keep to the shares of their queues, or do not.

use dueq_proof::check::Kind;
use dueq_proof::history::{BY_HAND, ClaimedItem, Event, Role, Share};

use crate::story::Story;

const QUEUE: &str = "q";

/// A worker that serves the queue of a story, and another queue with a reserve.
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

    /// The worker claims a message; its handler starts.
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

    /// The handler that started first ends.
    fn end(&mut self, wants: &str) {
        let (id, token) = self.open.remove(0);
        self.story.write(Event::Ended {
            queue: QUEUE.into(),
            id: id.clone(),
            wants: wants.into(),
        });
        self.story.ack(&id, &token);
    }

    /// So many handlers run at once, and end.
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
fn a_worker_keeps_to_its_concurrency() {
    Worker::new(3, 0, 100).run(3).is_clean();
    Worker::new(3, 0, 100).run(4).has(Kind::SharesBroken);
}

#[test]
fn a_queue_keeps_to_its_max() {
    Worker::new(10, 0, 2).run(2).is_clean();
    Worker::new(10, 0, 2).run(3).has(Kind::SharesBroken);
}

#[test]
fn a_queue_leaves_the_reserve_of_another() {
    Worker::new(4, 2, 100).run(2).is_clean();
    Worker::new(4, 2, 100).run(3).has(Kind::SharesBroken);
}

#[test]
fn handlers_that_ended_count_no_more() {
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
fn a_worker_without_its_shares_is_no_proof() {
    let run = |mut story: Story| {
        story.push("a", "+0", "CREATED");
        let token = story.at(5).claim("a", 0, 1);
        story.ack("a", &token).verdict()
    };
    assert!(run(Story::new()).valid);
    assert!(!run(Story::of(Role::Worker)).valid);
}
