//! `/queues/Q`: the page of one queue.

mod act;
mod due;
mod history;
mod late;
mod limits;
mod read;
mod why;

use askama::Template;
use axum::Router;
use axum::routing::get;

use crate::dashboard::api::Failure;
use crate::dashboard::form::{Fields, Form};
use crate::dashboard::frame::{Frame, Here, segment};
use crate::dashboard::page::Page;
use crate::dashboard::show::{self, Clock, Markup};
use crate::dashboard::views::answer::{Answer, again, render};
use crate::dashboard::views::schedules::rule;
use crate::wire::about::Examination;
use crate::wire::causes::is_late;
use crate::wire::messages::Messages;
use crate::wire::queues::Queue;
use crate::wire::schedules::{Schedule, Schedules};
use crate::wire::workers::{Node, Nodes};
use crate::work::Shared;

use due::{Choice, Tab};
use history::{Histories, Range};
use limits::Limit;
use read::{Parts, read};
use why::Cause;

/// The most workers that the page shows.
const MAX_NODES: usize = 50;

/// A part of the page, or why the call for it failed.
type Part<T> = Result<T, String>;

/// The numbers at the top of the page.
struct Figures {
    /// When the next message is due; `None` if no due time is known.
    next: Part<Option<Next>>,
    /// p99 of the lateness in the last hour, and the number of messages.
    late: Part<Option<(String, String)>>,
}

enum Next {
    Now,
    At(Markup),
}

#[derive(Template)]
#[template(path = "queue.html")]
struct QueuePage {
    frame: Frame,
    name: String,
    /// The queue's name, quoted for a shell.
    word: String,
    /// The address of this page, below the base path.
    address: String,
    may_operate: bool,
    clock: Clock,
    stats: Part<Queue>,
    figures: Figures,
    causes: Part<Vec<Cause>>,
    findings: Findings,
    due_tabs: Vec<Choice>,
    due: Part<Markup>,
    has_timers: bool,
    ranges: Vec<Choice>,
    range: Range,
    history: Part<Histories>,
    nodes: Part<Nodes>,
    schedules: Part<Schedules>,
    limits: Vec<Limit>,
    fields: Fields,
}

/// The doctor's findings about a queue with overdue messages.
enum Findings {
    /// The page did not ask the doctor.
    NotAsked,
    /// The doctor is not done: it looks twice, seconds apart, to see whether messages move.
    Looking,
    Read(Part<Examination>),
}

pub(super) fn routes() -> Router<Shared> {
    Router::new().route("/queues/{queue}", get(queue).post(act))
}

async fn queue(page: Page) -> Answer {
    let name = page.queue_name()?.to_owned();
    let tab = Tab::named(page.param("due"));
    let range = Range::named(page.param("range"));
    let segment = segment(&name);
    let parts = read(&page, &segment, tab, range).await?;
    render(&QueuePage::new(page, &name, &segment, parts))
}

async fn act(page: Page, form: Form) -> Answer {
    match act::change(&page, &form).await {
        Err(failure) => again(queue(page.refused(&form, failure)?).await),
        done => done,
    }
}

impl QueuePage {
    fn new(page: Page, name: &str, segment: &str, parts: Parts) -> Self {
        let (tab, range) = (parts.tab, parts.range);
        let clock = page.clock.clone().at(parts.now_ms);
        let address = format!("{}/queues/{segment}", page.base);
        let mut frame = page.frame(show::text(name), Here::Queue).at(&clock);
        frame.redis = frame.redis.or(parts.away);
        let word = show::text(&dueq::admin::shell_word(name.as_bytes()));
        let stats = part(parts.stats);
        let why = stats
            .as_ref()
            .map(|stats| why::causes(stats, &clock, &word, &address));
        let ready = stats.as_ref().ok().map(|stats| stats.ready);
        let figures = Figures {
            next: next(&stats, parts.earliest, &parts.schedules, &clock),
            late: part(parts.hour).map(|hour| history::late(&hour)),
        };
        let limits = stats.as_ref().map(limits::limits).unwrap_or_default();
        let has_timers = stats.as_ref().is_ok_and(|stats| stats.schedules > 0);
        Self {
            name: show::text(name),
            may_operate: page.caller().may_operate,
            causes: why.map_err(Clone::clone),
            findings: match parts.doctor {
                None => Findings::NotAsked,
                Some(None) => Findings::Looking,
                Some(Some(examined)) => Findings::Read(part(examined).map(why::unnamed)),
            },
            due_tabs: tab.choices(&address, range.word()),
            due: part(parts.dues).map(|dues| due::chart(tab, &dues, ready, &address, &clock)),
            has_timers,
            ranges: range.choices(&address, tab.word()),
            history: part(parts.history).map(|history| Histories::new(&history, &clock)),
            range,
            nodes: part(parts.nodes),
            schedules: part(parts.schedules),
            limits,
            fields: page.fields,
            figures,
            stats,
            frame,
            word,
            address,
            clock,
        }
    }

    /// Whether the queue has no messages and no workers.
    fn is_idle(&self) -> bool {
        self.stats
            .as_ref()
            .is_ok_and(|stats| stats.held() == 0 && stats.nodes == 0)
    }

    /// The time at which a closed queue opens again; `None` if it is not closed. A rate closes its
    /// queue for moments, which nobody can read or end.
    fn closed_until(&self) -> Option<Markup> {
        let closed_ms = self.stats.as_ref().ok()?.closed_ms;
        let until = self.clock.now_ms().saturating_add(closed_ms);
        (closed_ms >= 1_000).then(|| self.clock.time(until))
    }

    /// Whether the form of the limits was refused.
    fn is_limit_wrong(&self) -> bool {
        let mut limits = self.limits.iter();
        limits.any(|limit| self.fields.has_mistake(limit.field))
    }

    fn is_late(&self) -> bool {
        self.stats.as_ref().is_ok_and(is_late)
    }

    /// Whether the page explains why messages wait.
    fn has_trouble(&self) -> bool {
        let is_caused = self.causes.as_ref().is_ok_and(|causes| !causes.is_empty());
        is_caused
            || match &self.findings {
                Findings::NotAsked => false,
                Findings::Read(Ok(examination)) => !examination.is_empty(),
                Findings::Looking | Findings::Read(Err(_)) => true,
            }
    }

    /// The first `MAX_NODES` workers; leaders come first.
    fn shown<'a>(&self, nodes: &'a Nodes) -> Vec<&'a Node> {
        let mut all: Vec<_> = nodes.nodes.iter().collect();
        all.sort_by_key(|node| node.leads == 0);
        all.truncate(MAX_NODES);
        all
    }

    fn listed<'a>(&self, page: &'a Schedules) -> Vec<&'a Schedule> {
        page.schedules.iter().map(|one| &one.schedule).collect()
    }

    /// The rule of the schedule, in words.
    fn rule_of(&self, schedule: &Schedule) -> String {
        let (rule, zone) = rule(schedule);
        match zone {
            Some(zone) => format!("{rule} in {zone}"),
            None => rule,
        }
    }

    fn next_tick(&self, schedule: &Schedule) -> Option<Markup> {
        schedule.next_ms.map(|ms| self.clock.time(ms))
    }

    fn segment_of(&self, schedule: &Schedule) -> String {
        segment(&schedule.name)
    }
}

/// When the next message or tick is due.
fn next(
    stats: &Part<Queue>,
    earliest: Option<Result<Messages, Failure>>,
    schedules: &Result<Schedules, Failure>,
    clock: &Clock,
) -> Part<Option<Next>> {
    let stats = stats.as_ref().map_err(Clone::clone)?;
    if stats.due + stats.ready > 0 {
        return Ok(Some(Next::Now));
    }
    let message = match earliest {
        Some(earliest) => part(earliest)?
            .messages
            .first()
            .and_then(|message| message.times.due_ms),
        None => None,
    };
    let ticks = schedules.iter().flat_map(|schedules| &schedules.schedules);
    let tick = ticks.filter_map(|schedule| schedule.schedule.next_ms).min();
    let next = message.into_iter().chain(tick).min();
    Ok(next.map(|ms| Next::At(clock.time(ms))))
}

/// The result of the call, or in words what failed and why.
fn part<T>(read: Result<T, Failure>) -> Part<T> {
    read.map_err(|failure| match failure.detail() {
        "" => format!("the call answered {}", failure.status()),
        detail => show::text(detail),
    })
}
