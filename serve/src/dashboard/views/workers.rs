//! `/workers`: the live workers of all queues, by process and by queue.

mod process;

use std::time::{Duration, Instant};

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::routing::get;
use dueq::inspect::NodeInfo;

use crate::dashboard::frame::{Frame, Here, segment};
use crate::dashboard::page::Page;
use crate::dashboard::show::{self, Markup};
use crate::dashboard::views::answer::{Answer, render};
use crate::dashboard::views::pages::Pages;
use crate::dashboard::views::queues::All;
use crate::dashboard::views::workers::process::ProcessRow;
use crate::wire::queues::Counts;
use crate::wire::workers::Processes;
use crate::work::Shared;
use crate::work::poll::{Known, View};

/// The number of queues on a page.
const PAGE: usize = 50;
/// The most workers that a queue shows.
const MAX_NODES: usize = 20;
/// The longest wait for workers that were never read.
const PATIENCE: Duration = Duration::from_millis(300);

/// The workers of a queue.
struct Group {
    queue: String,
    segment: String,
    workers: u64,
    counts: Counts,
    /// `None`: the workers are not read yet.
    nodes: Option<Vec<Node>>,
    /// The number of workers that are not shown.
    more: u64,
    /// The age of the list of workers.
    age: String,
}

struct Node {
    id: String,
    /// The partitions that the worker leads, in words; `None` shows a dash.
    leads: Option<String>,
    report: String,
}

#[derive(Template)]
#[template(path = "workers.html")]
struct WorkersPage {
    frame: Frame,
    groups: Vec<Group>,
    processes: Vec<ProcessRow>,
    /// How many queues have workers that were not read yet.
    unread: u64,
    queues: u64,
    /// The queues that have due messages and no worker: name and segment.
    unattended: Vec<(String, String)>,
    more_unattended: usize,
    pages: Pages,
}

/// The most queues without a worker that the page names.
const MAX_UNATTENDED: usize = 10;

pub(super) use process::address;

pub(super) fn routes() -> Router<Shared> {
    Router::new()
        .route("/workers", get(workers))
        .merge(process::routes())
}

async fn workers(State(app): State<Shared>, page: Page) -> Answer {
    let all = All::read(&page).await?.queues;
    let (mut attended, mut unattended) = (Vec::new(), Vec::new());
    for listed in all {
        match listed.counts {
            Some(counts) if counts.nodes > 0 => attended.push((listed.queue, counts)),
            Some(counts) if counts.due + counts.ready > 0 => unattended.push(listed.queue),
            _ => {}
        }
    }
    let pages = Pages::new(page.param("page"), attended.len(), PAGE, &[]);
    let of_queues: Processes = page.api.get("/v1/processes").await?;
    let queues = attended.len() as u64;
    let here = &attended[pages.range()];
    let names: Vec<_> = here.iter().map(|(name, _)| name.as_str()).collect();
    let mut known = app.poller.details(View::Workers, &names, PATIENCE).await;
    let groups = here.iter().map(|(name, counts)| {
        let known = known.remove(name.as_str());
        Group::new(name, counts, &known.unwrap_or_else(Known::default))
    });
    let more_unattended = unattended.len().saturating_sub(MAX_UNATTENDED);
    unattended.truncate(MAX_UNATTENDED);
    let unattended = unattended.iter();
    render(&WorkersPage {
        groups: groups.collect(),
        frame: page.frame("Workers", Here::Workers),
        processes: of_queues
            .processes
            .iter()
            .map(|process| ProcessRow::new(process, &page.clock))
            .collect(),
        unread: of_queues.unread,
        queues,
        unattended: unattended
            .map(|name| (show::text(name), segment(name)))
            .collect(),
        more_unattended,
        pages,
    })
}

impl Group {
    fn new(name: &str, counts: &Counts, known: &Known) -> Self {
        let nodes = known.nodes.as_ref();
        let age = nodes.map(|(_, at)| Instant::now().duration_since(*at));
        let age = age.unwrap_or_default().as_secs() * 1_000;
        let shown = nodes.map(|(nodes, _)| {
            let mut nodes: Vec<_> = nodes.iter().collect();
            // Workers that lead come first.
            nodes.sort_by_key(|node| std::cmp::Reverse(node.leads));
            let shown = nodes.into_iter().take(MAX_NODES);
            shown.map(Node::new).collect::<Vec<_>>()
        });
        let read = nodes.map_or(0, |(nodes, _)| nodes.len()) as u64;
        let listed = shown.as_ref().map_or(0, Vec::len) as u64;
        Self {
            queue: show::text(name),
            segment: segment(name),
            workers: counts.nodes,
            counts: counts.clone(),
            more: read.saturating_sub(listed),
            nodes: shown,
            age: match age {
                0 => "just now".to_owned(),
                age => format!("{} ago", show::duration(age)),
            },
        }
    }

    /// The worker, if it is the only one: it needs no row of its own.
    fn only(&self) -> Option<&Node> {
        match self.nodes.as_deref() {
            Some([node]) if self.workers == 1 => Some(node),
            _ => None,
        }
    }

    /// The number of messages that the workers have leased.
    fn held(&self) -> Markup {
        show::short(self.counts.leased)
    }

    fn waiting(&self) -> Markup {
        show::short(self.counts.due.saturating_add(self.counts.ready))
    }
}

impl Node {
    fn new(node: &NodeInfo) -> Self {
        let leads = match (node.leads, node.attends) {
            (0, _) => None,
            (1, 0 | 1) => Some("the leader".to_owned()),
            (leads, attends) => Some(format!("leads {leads} of {attends} partitions")),
        };
        Self {
            id: show::text(&node.id),
            leads,
            report: match node.parked_ms {
                0 => format!("{} ago", show::duration(node.silent_ms)),
                ms => format!("the next in {}", show::duration(ms)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_whose_workers_are_unread_shows_none() {
        let counts = Counts {
            nodes: 3,
            leased: 12,
            ..Counts::default()
        };
        let group = Group::new("a\u{200b}", &counts, &Known::default());
        assert_eq!((group.queue.as_str(), group.workers), ("a\\u{200b}", 3));
        assert!(group.nodes.is_none());
        assert_eq!(group.held().to_string(), "12");
    }
}
