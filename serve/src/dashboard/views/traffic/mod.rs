//! `/traffic`: all queues together, now, in the last hour and in the next week.

mod ahead;
mod past;

use std::time::Duration;

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::routing::get;

use crate::dashboard::frame::{Frame, Here};
use crate::dashboard::page::Page;
use crate::dashboard::show::{self, Markup};
use crate::dashboard::views::answer::{Answer, render};
use crate::dashboard::views::queues::All;
use crate::wire::queues::Listed;
use crate::work::Shared;
use crate::work::poll::{Rates, View};

use ahead::{Ahead, Reach, ReachTab};
use past::Past;

/// The most queues on the page: the poller keeps the details of so many.
const MAX_QUEUES: usize = 1_000;
/// The longest wait for details that were never read: long enough to read those of a few queues.
const PATIENCE: Duration = Duration::from_millis(25);

/// The numbers at the top of the page.
#[derive(Default)]
struct Now {
    waiting: u64,
    due: u64,
    leased: u64,
    dead: u64,
    overdue_ms: u64,
}

#[derive(Template)]
#[template(path = "traffic.html")]
struct TrafficPage {
    frame: Frame,
    /// The number of the caller's queues, and of those whose details are read.
    queues: usize,
    read: usize,
    now: Now,
    rates: Option<Rates>,
    tabs: Vec<ReachTab>,
    ahead: Markup,
    ticks: u64,
    past: Past,
}

pub(super) fn routes() -> Router<Shared> {
    Router::new().route("/traffic", get(traffic))
}

async fn traffic(State(app): State<Shared>, page: Page) -> Answer {
    let mut all = All::read(&page).await?.queues;
    let (count, now) = (all.len(), Now::of(&all));
    let names: Vec<_> = all.iter().map(|listed| listed.queue.as_str()).collect();
    let rates = app.poller.snapshot().rates(&names);
    // Of more queues, those with the most messages.
    let held = |listed: &Listed| {
        let counts = listed.counts.as_ref();
        counts.map_or(0, |counts| counts.scheduled + counts.ready + counts.leased)
    };
    all.sort_by_key(|listed| std::cmp::Reverse(held(listed)));
    all.truncate(MAX_QUEUES);
    let names: Vec<_> = all.iter().map(|listed| listed.queue.as_str()).collect();
    let known = app.poller.details(View::Traffic, &names, PATIENCE).await;
    let clock = &page.clock;
    let dues = known.iter().filter_map(|(name, known)| {
        let (due, _) = known.due.as_ref()?;
        Some((&**name, &**due))
    });
    let dues: Vec<_> = dues.collect();
    let reach = Reach::of(page.param("due"), &dues, clock.now_ms());
    let ahead = Ahead::new(reach, &dues, clock, &page.base);
    let lately = known.iter().filter_map(|(name, known)| {
        let (lately, _) = known.lately.as_ref()?;
        Some((&**name, &**lately))
    });
    let past = Past::new(&lately.collect::<Vec<_>>(), clock);
    render(&TrafficPage {
        frame: page.frame("Traffic", Here::Traffic),
        queues: count,
        read: dues.len(),
        now,
        rates,
        tabs: Reach::tabs(reach),
        ahead: ahead.chart,
        ticks: ahead.ticks,
        past,
    })
}

impl TrafficPage {
    fn count(&self) -> u64 {
        self.queues as u64
    }

    fn count_read(&self) -> u64 {
        self.read as u64
    }

    /// Whether the page lacks the details of some queues.
    fn is_partial(&self) -> bool {
        self.read < self.queues
    }
}

impl Now {
    fn of(all: &[Listed]) -> Self {
        let counts = all.iter().filter_map(|listed| listed.counts.as_ref());
        counts.fold(Self::default(), |sum, counts| Self {
            waiting: sum.waiting + counts.scheduled.saturating_sub(counts.due),
            due: sum.due + counts.due + counts.ready,
            leased: sum.leased + counts.leased,
            dead: sum.dead + counts.dead,
            overdue_ms: sum.overdue_ms.max(counts.overdue_ms),
        })
    }
}
