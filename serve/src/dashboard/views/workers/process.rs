//! `/workers/process`: one process, its queues and what it holds.

use askama::Template;
use axum::Router;
use axum::http::Method;
use axum::routing::get;
use form_urlencoded::Serializer;
use serde::Deserialize;
use serde_json::json;

use crate::dashboard::form::Form;
use crate::dashboard::frame::{Frame, Here, segment};
use crate::dashboard::page::Page;
use crate::dashboard::show::{self, Clock, Markup};
use crate::dashboard::views::answer::{Answer, render, see};
use crate::dashboard::views::each;
use crate::edge::problem::{Code, Problem};
use crate::wire::messages::Messages;
use crate::wire::overview::Dues;
use crate::wire::workers::{ListedProcess, Processes, ToldProcess};
use crate::work::Shared;

/// The most queues whose leased messages are read, and the most messages of each.
const MAX_QUEUES: usize = 20;
const OF_QUEUE: usize = 1_000;
/// The most messages that the page shows: those that run longest.
const MAX_HELD: usize = 200;

/// A process in the list of processes.
pub(super) struct ProcessRow {
    /// Its process id and host; else the id of its worker.
    pub(super) name: String,
    pub(super) href: Option<String>,
    pub(super) program: String,
    pub(super) since: Option<Markup>,
    /// How many handlers run and may run; a dash if it told nothing or serves pulls only.
    pub(super) handlers: String,
    pub(super) queues: u64,
    pub(super) queue: Option<(String, String)>,
    pub(super) leads: u64,
    /// That it takes nothing new, and of how many of its queues; `None` if it takes of all.
    pub(super) drained: Option<String>,
    pub(super) report: String,
}

/// A message that the process has.
struct HeldMessage {
    queue: String,
    segment: String,
    id: String,
    id_segment: String,
    since: Option<Markup>,
    until: Markup,
    crashes: u32,
}

#[derive(Template)]
#[template(path = "process.html")]
struct ProcessPage {
    frame: Frame,
    /// `None`: the process has no live worker.
    row: Option<ProcessRow>,
    may_operate: bool,
    /// Whether it takes messages of some of its queues; whether it is drained in some.
    takes: bool,
    is_drained: bool,
    host: String,
    pid: String,
    workers: Vec<String>,
    /// Names and segments.
    queues: Vec<(String, String)>,
    held: Vec<HeldMessage>,
    /// The number of messages that it has in the queues that were read.
    count: u64,
    /// Whether there may be more than `count`.
    is_cut: bool,
    /// Whether not all of `count` are shown.
    is_shortened: bool,
}

pub(super) fn routes() -> Router<Shared> {
    Router::new().route("/workers/process", get(process).post(act))
}

/// The address of the page of a process.
pub(in crate::dashboard::views) fn address(process: &ToldProcess) -> String {
    address_of(&process.host, process.pid)
}

fn address_of(host: &str, pid: u32) -> String {
    let mut params = Serializer::new(String::new());
    params.append_pair("host", host);
    params.append_pair("pid", &pid.to_string());
    format!("/workers/process?{}", params.finish())
}

/// The answer of `/v1` to a drain or a resume.
#[derive(Deserialize)]
struct Changed {
    outcome: String,
    #[serde(default)]
    full: Vec<String>,
    #[serde(default)]
    unreached: Vec<String>,
}

/// Drains or resumes the process.
async fn act(page: Page, form: Form) -> Answer {
    let invalid = |detail| Problem::new(Code::InvalidInput, detail);
    let host = form.get("host").unwrap_or_default();
    let pid: u32 = form
        .get("pid")
        .and_then(|pid| pid.parse().ok())
        .ok_or_else(|| invalid("pid"))?;
    let address = match form.get("action") {
        Some("drain") => "/v1/processes/drain",
        Some("resume") => "/v1/processes/resume",
        _ => return Err(invalid("the form names no known action").into()),
    };
    let body = json!({ "host": host, "pid": pid });
    let changed: Changed = page.api.send(Method::POST, address, Some(&body)).await?;
    let did = match changed.outcome.as_str() {
        _ if !changed.unreached.is_empty() => "reached_in_part",
        "drained" if changed.full.is_empty() => "drained",
        "drained" => "drained_in_part",
        "resumed" => "undrained",
        _ => "no_process",
    };
    see(&page.base, &format!("{}&did={did}", address_of(host, pid)))
}

async fn process(page: Page) -> Answer {
    let missing = || Problem::new(Code::InvalidInput, "host and pid name the process");
    let host = page.param("host").ok_or_else(missing)?;
    let pid = page.param("pid").ok_or_else(missing)?;
    let all: Processes = page.api.get("/v1/processes").await?;
    let is_meant = |it: &ListedProcess| {
        let told = it.process.as_ref();
        told.is_some_and(|told| told.host == host && told.pid.to_string() == pid)
    };
    let found = all.processes.into_iter().find(is_meant);
    let mut clock = page.clock.clone();
    let (mut held, mut is_cut) = (Vec::new(), false);
    for name in found
        .iter()
        .flat_map(|it| it.queues.iter().take(MAX_QUEUES))
    {
        let queue = format!("/v1/queues/{}", segment(name));
        let now: Dues = page.api.get(&format!("{queue}/dues?count=1")).await?;
        clock = clock.at(now.now_ms);
        let list = format!("{queue}/messages?state=leased&limit={OF_QUEUE}");
        let list: Messages = page.api.get(&list).await?;
        is_cut |= list.next.is_some();
        let has = |node: Option<&str>| {
            let process = found.as_ref();
            node.zip(process).is_some_and(|(node, it)| it.has(node))
        };
        let of_process = list.messages.into_iter();
        let of_process = of_process.filter(|message| has(message.node.as_deref()));
        held.extend(of_process.map(|message| (name.clone(), message)));
    }
    is_cut |= found
        .as_ref()
        .is_some_and(|it| it.queues.len() > MAX_QUEUES);
    held.sort_by_key(|(_, message)| message.since_ms.unwrap_or(0));
    let (count, is_shortened) = (held.len() as u64, held.len() > MAX_HELD);
    held.truncate(MAX_HELD);
    let held = held.iter().map(|(queue, message)| HeldMessage {
        queue: show::text(queue),
        segment: segment(queue),
        id: each::shown(message.segment()),
        id_segment: message.segment().to_owned(),
        since: message.since_ms.map(|ms| clock.time(ms)),
        until: clock.time(message.times.ms()),
        crashes: message.crashes,
    });
    let named = |name: &String| (show::text(name), segment(name));
    render(&ProcessPage {
        held: held.collect(),
        frame: page
            .frame(
                format!("Process {} on {}", show::text(pid), show::text(host)),
                Here::Workers,
            )
            .at(&clock),
        host: show::text(host),
        pid: show::text(pid),
        row: found.as_ref().map(|it| ProcessRow::new(it, &clock)),
        may_operate: page.caller().may_operate,
        takes: found
            .as_ref()
            .is_some_and(|it| it.drained.len() < it.queues.len()),
        is_drained: found.as_ref().is_some_and(|it| !it.drained.is_empty()),
        workers: found
            .iter()
            .flat_map(|it| it.workers.iter().map(|id| show::text(id)))
            .collect(),
        queues: found
            .iter()
            .flat_map(|it| it.queues.iter().map(named))
            .collect(),
        count,
        is_cut,
        is_shortened,
    })
}

impl ProcessRow {
    pub(super) fn new(process: &ListedProcess, clock: &Clock) -> Self {
        let told = process.process.as_ref();
        let handlers = |told: &ToldProcess| format!("{} of {}", told.running, told.concurrency);
        Self {
            name: match told {
                Some(told) => show::text(&format!("{} on {}", told.pid, told.host)),
                None => show::text(&process.workers.join(" ")),
            },
            href: told.map(address),
            program: told.map_or_else(|| "–".to_owned(), |told| show::text(&told.program)),
            since: told.map(|told| clock.time(told.started_ms)),
            handlers: told
                .filter(|told| told.concurrency > 0)
                .map_or_else(|| "–".to_owned(), handlers),
            queues: process.queues.len() as u64,
            queue: match process.queues.as_slice() {
                [queue] => Some((show::text(queue), segment(queue))),
                _ => None,
            },
            leads: process.leads as u64,
            drained: match (process.drained.len(), process.queues.len()) {
                (0, _) => None,
                (drained, queues) if drained >= queues => Some("drained".to_owned()),
                (drained, queues) => Some(format!("drained in {drained} of {queues} queues")),
            },
            report: format!("{} ago", show::duration(process.silent_ms)),
        }
    }
}
