//! `/schedules`: the schedules of all queues, those that need a person first.

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::routing::get;
use std::time::Duration;

use crate::dashboard::frame::{Frame, Here, segment};
use crate::dashboard::page::Page;
use crate::dashboard::show::{self, Markup};
use crate::dashboard::views::answer::{Answer, render};
use crate::dashboard::views::queues::All;
use crate::wire::queues::Listed;
use crate::wire::schedules::Schedule;
use crate::work::Shared;
use crate::work::poll::{MAX_SCHEDULES, View};

/// The most queues whose schedules are read: the poller keeps the details of so many.
const MAX_QUEUES: usize = 1_000;
/// The most rows of the page.
const MAX_ROWS: usize = 100;
/// The longest wait for schedules that were never read: long enough to read those of a few queues.
const PATIENCE: Duration = Duration::from_millis(100);

struct Row {
    queue: String,
    name: String,
    /// The address below the base path.
    address: String,
    rule: String,
    zone: Option<String>,
    state: String,
    next: Option<Markup>,
    last: Option<Markup>,
    missed: u64,
}

#[derive(Template)]
#[template(path = "schedules.html")]
struct SchedulesPage {
    frame: Frame,
    /// What the names were filtered by.
    filter: String,
    rows: Vec<Row>,
    /// The number of schedules that the filter lets through.
    found: u64,
    /// The number of all schedules of the caller's queues, and of those that were read.
    all: u64,
    read: u64,
}

pub(super) fn routes() -> Router<Shared> {
    Router::new().route("/schedules", get(schedules))
}

async fn schedules(State(app): State<Shared>, page: Page) -> Answer {
    let mut queues = All::read(&page).await?.queues;
    queues.retain(|listed| count(listed) > 0);
    let all = queues.iter().map(count).sum();
    queues.truncate(MAX_QUEUES);
    let names: Vec<_> = queues.iter().map(|listed| listed.queue.as_str()).collect();
    let known = app.poller.details(View::Schedules, &names, PATIENCE).await;
    let dues = known.iter().filter_map(|(name, known)| {
        let (due, _) = known.due.as_ref()?;
        Some((&**name, &**due))
    });
    let each = dues.flat_map(|(queue, due)| {
        let schedules = due.schedules.iter();
        schedules.map(move |schedule| (queue, schedule))
    });
    let mut each: Vec<_> = each.collect();
    let read = each.len() as u64;
    let filter = page.param("q").unwrap_or_default().trim().to_owned();
    let lower = filter.to_lowercase();
    let has = |text: &str| text.to_lowercase().contains(&lower);
    each.retain(|(queue, schedule)| has(queue) || has(&schedule.name));
    each.sort_by_key(|(queue, schedule)| {
        (rank(schedule), schedule.next_ms, *queue, &schedule.name)
    });
    let found = each.len() as u64;
    let rows = each.into_iter().take(MAX_ROWS);
    let rows = rows.map(|(queue, schedule)| Row::new(queue, schedule, &page));
    render(&SchedulesPage {
        rows: rows.collect(),
        frame: page.frame("Schedules", Here::Schedules),
        filter: show::text(&filter),
        found,
        all,
        read,
    })
}

impl SchedulesPage {
    fn is_many(&self) -> bool {
        self.all != 1
    }

    fn is_cut(&self) -> bool {
        self.found > self.rows.len() as u64
    }
}

fn count(listed: &Listed) -> u64 {
    listed.counts.as_ref().map_or(0, |counts| counts.schedules)
}

/// The place of a schedule in the list: what makes no ticks first, then what has missed some.
fn rank(schedule: &Schedule) -> u8 {
    match schedule.state.as_str() {
        "dry" => 0,
        "paused" => 1,
        "active" if schedule.missed > 0 => 2,
        "active" => 3,
        _ => 4,
    }
}

/// The rule of the schedule in words, and the zone of a cron.
pub(super) fn rule(schedule: &Schedule) -> (String, Option<String>) {
    let zone = || schedule.zone.as_deref().unwrap_or("UTC");
    match (&schedule.cron, schedule.every_ms) {
        (Some(cron), _) => (show::text(cron), Some(show::text(zone()))),
        (None, Some(ms)) => (format!("every {}", show::duration(ms)), None),
        (None, None) => ("–".to_owned(), None),
    }
}

impl Row {
    fn new(queue: &str, schedule: &Schedule, page: &Page) -> Self {
        let (rule, zone) = rule(schedule);
        let (path, anchor) = (segment(queue), segment(&schedule.name));
        // Before the first fire the time is that of the declaration, or none.
        let last_ms = Some(schedule.last_ms).filter(|_| schedule.made > 0);
        Self {
            queue: show::text(queue),
            name: show::text(&schedule.name),
            address: format!("/queues/{path}#schedule-{anchor}"),
            rule,
            zone,
            state: schedule.state.clone(),
            next: schedule.next_ms.map(|ms| page.clock.time(ms)),
            last: last_ms.map(|ms| page.clock.time(ms)),
            missed: schedule.missed,
        }
    }
}
