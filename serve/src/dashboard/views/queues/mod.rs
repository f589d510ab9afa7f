//! `/`: the list of all queues, those in trouble first.

mod listed;
mod trouble;

use std::time::Duration;

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::routing::get;

use crate::dashboard::frame::{Frame, Here, segment};
use crate::dashboard::page::Page;
use crate::dashboard::show;
use crate::dashboard::views::answer::{Answer, render};
use crate::dashboard::views::pages::Pages;
use crate::work::Shared;
use crate::work::poll::{Known, Rates, View};

pub(super) use listed::All;
use listed::Row;
use listed::{Order, Ranked, sorted};
use trouble::{Trouble, WhenLate};

/// The number of queues on a page.
const PAGE: usize = 100;
/// The most queues that are sorted by their last minutes: the poller keeps the details of so many.
const MAX_RANKED: usize = 1_000;
/// If the counts are older than this, the page shows their age.
const OLD_MS: u64 = 10_000;
/// The longest wait for details that were never read: long enough to read those of a few queues.
const PATIENCE: Duration = Duration::from_millis(25);

/// The number of queues in each kind of trouble.
#[derive(Default)]
struct Summary {
    unreadable: u64,
    overdue: u64,
    late: u64,
    failing: u64,
    paused: u64,
    dead: u64,
}

#[derive(Template)]
#[template(path = "queues.html")]
struct QueuesPage {
    frame: Frame,
    rows: Vec<Row>,
    /// The idle queues, which one row stands for: name and segment.
    idle: Vec<(String, String)>,
    summary: Summary,
    rates: Option<Rates>,
    /// `all`: the number of the caller's queues; `shown`: of those whose names match the filter.
    all: u64,
    shown: u64,
    filter: String,
    by_name: bool,
    is_complete: bool,
    /// The age of the counts, if they are older than usual.
    age: Option<String>,
    pages: Pages,
}

pub(super) fn routes() -> Router<Shared> {
    Router::new().route("/", get(queues))
}

async fn queues(State(app): State<Shared>, page: Page) -> Answer {
    let all = All::read(&page).await?;
    let filter = page.param("name").unwrap_or_default().trim();
    let order = match page.param("sort") {
        Some("name") => Order::Name,
        _ => Order::Trouble,
    };
    let count = all.queues.len() as u64;
    let names: Vec<_> = all
        .queues
        .iter()
        .map(|listed| listed.queue.as_str())
        .collect();
    let ranked = &names[..names.len().min(MAX_RANKED)];
    let known = app.poller.details(View::Trouble, ranked, PATIENCE).await;
    let rates = app.poller.snapshot().rates(&names);
    let ranked = all.queues.into_iter().map(|listed| {
        let known = known.get(listed.queue.as_str());
        let lately = known.and_then(|known| known.lately.as_ref());
        Ranked::new(listed, lately.map(|(lately, _)| &**lately))
    });
    let queues = sorted(ranked.collect(), filter, order);
    let shown = queues.len() as u64;
    let summary = Summary::of(&queues);
    let mut params = vec![("name", filter)];
    if order == Order::Name {
        params.push(("sort", "name"));
    }
    let folds = order == Order::Trouble && filter.is_empty() && page.param("idle").is_none();
    let (idle, queues): (Vec<_>, Vec<_>) = queues
        .into_iter()
        .partition(|ranked| folds && ranked.is_idle);
    let pages = Pages::new(page.param("page"), queues.len(), PAGE, &params);
    let here = &queues[pages.range()];
    let names: Vec<_> = here
        .iter()
        .map(|ranked| ranked.listed.queue.as_str())
        .collect();
    let age_ms = here.iter().filter_map(|ranked| ranked.listed.age_ms).max();
    let age_ms = age_ms.filter(|age_ms| *age_ms > OLD_MS);
    let mut known = app.poller.details(View::Queues, &names, PATIENCE).await;
    let rows = here.iter().map(|ranked| {
        let known = known.remove(ranked.listed.queue.as_str());
        Row::new(ranked, &known.unwrap_or_else(Known::default))
    });
    let rows = rows.collect();
    render(&QueuesPage {
        frame: page.frame("Queues", Here::Queues),
        rows,
        idle: idle
            .iter()
            .map(|ranked| {
                (
                    show::text(&ranked.listed.queue),
                    segment(&ranked.listed.queue),
                )
            })
            .collect(),
        summary,
        rates,
        all: count,
        shown,
        filter: filter.to_owned(),
        by_name: order == Order::Name,
        is_complete: all.is_complete,
        age: age_ms.map(show::duration),
        pages,
    })
}

impl QueuesPage {
    fn idle_count(&self) -> u64 {
        self.idle.len() as u64
    }
}

impl Summary {
    fn of(queues: &[Ranked]) -> Self {
        let mut summary = Self::default();
        for queue in queues {
            match queue.trouble {
                Trouble::Unreadable => summary.unreadable += 1,
                Trouble::Late(WhenLate::Now, _) => summary.overdue += 1,
                Trouble::Late(WhenLate::Lately, _) => summary.late += 1,
                Trouble::Failing(_) => summary.failing += 1,
                _ => {}
            }
            let counts = queue.listed.counts.as_ref();
            summary.paused += u64::from(counts.is_some_and(|counts| counts.paused));
            summary.dead += counts.map_or(0, |counts| counts.dead);
        }
        summary
    }
}
