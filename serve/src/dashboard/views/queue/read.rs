//! The calls that the page of a queue makes. If one fails, only its part of the page is empty.

use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::dashboard::api::{Api, Failure};
use crate::dashboard::frame::Here;
use crate::dashboard::page::Page;
use crate::dashboard::show;
use crate::dashboard::views::queue::due::{Tab, addresses};
use crate::dashboard::views::queue::history::Range;
use crate::edge::problem::{Code, Problem};
use crate::wire::about::Examination;
use crate::wire::causes::is_late;
use crate::wire::messages::Messages;
use crate::wire::overview::{Dues, History};
use crate::wire::queues::Queue;
use crate::wire::schedules::Schedules;
use crate::wire::workers::Nodes;

/// The longest wait for the counts while Redis is known to be unreachable: the call itself would
/// repeat for 10 s.
const PATIENCE: Duration = Duration::from_secs(1);
const HOUR_MS: u64 = 3_600_000;
/// The longest wait for the doctor, who takes seconds if messages are late.
const DOCTOR: Duration = Duration::from_millis(50);

/// The answers to the calls.
pub(super) struct Parts {
    /// How far ahead and back the charts reach.
    pub(super) tab: Tab,
    pub(super) range: Range,
    /// Why all calls failed, if Redis does not answer.
    pub(super) away: Option<String>,
    /// Redis's current time if a call returned it, else the local time.
    pub(super) now_ms: u64,
    pub(super) stats: Result<Queue, Failure>,
    /// The earliest scheduled message; `None` if no message is scheduled.
    pub(super) earliest: Option<Result<Messages, Failure>>,
    pub(super) dues: Result<Dues, Failure>,
    pub(super) history: Result<History, Failure>,
    /// The history of the last hour.
    pub(super) hour: Result<History, Failure>,
    pub(super) nodes: Result<Nodes, Failure>,
    pub(super) schedules: Result<Schedules, Failure>,
    /// `None`: not asked. `Some(None)`: the doctor has not finished.
    pub(super) doctor: Option<Option<Result<Examination, Failure>>>,
}

pub(super) async fn read(
    page: &Page,
    segment: &str,
    tab: Option<Tab>,
    range: Option<Range>,
) -> Result<Parts, Failure> {
    let api = &page.api;
    let queue = format!("/v1/queues/{segment}");
    let is_away = page.frame("", Here::Queue).redis;
    let counts = api.get::<Queue>(&queue);
    let stats = match is_away {
        None => counts.await,
        Some(reason) => timeout(PATIENCE, counts)
            .await
            .unwrap_or_else(|_| Err(Problem::new(Code::RedisUnavailable, reason).into())),
    };
    match &stats {
        Err(failure) if failure.status().is_client_error() => return Err(failure.clone()),
        // Skip all further calls: while Redis is unreachable, the page would wait for each of them.
        Err(failure) if is_unreachable(failure) => {
            return Ok(Parts {
                tab: tab.unwrap_or(Tab::Day),
                range: range.unwrap_or(Range::Hour),
                ..Parts::failed(page.clock.now_ms(), failure)
            });
        }
        _ => {}
    }
    let none = |count: fn(&Queue) -> u64| stats.as_ref().is_ok_and(|stats| count(stats) == 0);
    let call = range.unwrap_or(Range::Day).call();
    let mut history: Result<History, _> = get(api, &queue, call).await;
    let fit = history.as_ref().map_or(Range::Hour, Range::fit);
    let range = match range {
        None if fit == Range::Hour => {
            history = get(api, &queue, Range::Hour.call()).await;
            fit
        }
        range => range.unwrap_or(fit),
    };
    let now_ms = match &history {
        Ok(history) => history.now_ms,
        Err(_) => page.clock.now_ms(),
    };
    let earliest = async {
        match none(|stats| stats.scheduled) {
            true => None,
            false => Some(get(api, &queue, "messages?state=scheduled&limit=1").await),
        }
    };
    let hour = async {
        match range {
            Range::Hour => None,
            _ => Some(get(api, &queue, Range::Hour.call()).await),
        }
    };
    let nodes = async {
        match none(|stats| stats.nodes) {
            true => Ok(Nodes::default()),
            false => get(api, &queue, "nodes").await,
        }
    };
    let schedules = async {
        match none(|stats| stats.schedules) {
            true => Ok(Schedules::default()),
            false => get(api, &queue, "schedules?limit=100").await,
        }
    };
    let doctor = async {
        match stats.as_ref().is_ok_and(is_late) {
            true => Some(examined(api.clone(), format!("{queue}/doctor")).await),
            false => None,
        }
    };
    let (dues, earliest, hour, nodes, schedules, doctor) = tokio::join!(
        dues(page, &queue, tab, now_ms),
        earliest,
        hour,
        nodes,
        schedules,
        doctor
    );
    let (tab, dues) = dues;
    let failed = [
        dues.as_ref().err(),
        history.as_ref().err(),
        nodes.as_ref().err(),
        schedules.as_ref().err(),
    ];
    let unreachable = failed
        .into_iter()
        .flatten()
        .find(|failure| is_unreachable(failure));
    let reason = unreachable.map(away);
    Ok(Parts {
        tab,
        range,
        away: reason,
        now_ms,
        hour: match (hour, &history) {
            (Some(hour), _) => hour,
            (None, Ok(history)) => Ok(history.clone()),
            (None, Err(failure)) => Err(failure.clone()),
        },
        stats,
        earliest,
        dues,
        history,
        nodes,
        schedules,
        doctor,
    })
}

fn away(failure: &Failure) -> String {
    format!("Redis does not answer: {}", show::text(failure.detail()))
}

fn is_unreachable(failure: &Failure) -> bool {
    let codes = [Code::RedisUnavailable, Code::RedisTimeout];
    codes.iter().any(|code| failure.code() == code.word())
}

async fn get<T: DeserializeOwned>(api: &Api, queue: &str, call: &str) -> Result<T, Failure> {
    api.get(&format!("{queue}/{call}")).await
}

/// Reads the bars of a tab; without one, of the tab that suits. The tab of all messages first needs
/// the due time of the last message.
async fn dues(
    page: &Page,
    queue: &str,
    tab: Option<Tab>,
    now_ms: u64,
) -> (Tab, Result<Dues, Failure>) {
    let api = &page.api;
    let call = |times: &[u64]| format!("dues?times={}", addresses(times));
    let (tab, last_ms) = match tab {
        Some(Tab::All) | None => {
            let times = [now_ms, now_ms + HOUR_MS, now_ms + 24 * HOUR_MS];
            let all: Dues = match get(api, queue, &call(&times)).await {
                Ok(all) => all,
                Err(failure) => return (tab.unwrap_or(Tab::Day), Err(failure)),
            };
            let count = |slot: usize| all.slots.get(slot).map_or(0, |slot| slot.count);
            let fit = Tab::fit(count(1), count(2), count(3));
            (tab.unwrap_or(fit), all.last_ms.unwrap_or(now_ms))
        }
        Some(tab) => (tab, now_ms),
    };
    let times = tab.times(&page.clock.clone().at(now_ms), last_ms);
    (tab, get(api, queue, &call(&times)).await)
}

/// The examination, if it ends soon. Otherwise it goes on in the background; all viewers share its
/// result for 10 s, so the next page has it.
async fn examined(api: Api, address: String) -> Option<Result<Examination, Failure>> {
    let examining = tokio::spawn(async move { api.get(&address).await });
    match timeout(DOCTOR, examining).await {
        Ok(Ok(examined)) => Some(examined),
        Ok(Err(_)) => {
            let problem = Problem::new(Code::Internal, "the examination broke off");
            Some(Err(problem.into()))
        }
        Err(_) => None,
    }
}

impl Parts {
    /// The parts of a page whose calls all failed.
    fn failed(now_ms: u64, failure: &Failure) -> Self {
        Self {
            tab: Tab::Day,
            range: Range::Hour,
            away: Some(away(failure)),
            now_ms,
            stats: Err(failure.clone()),
            earliest: None,
            dues: Err(failure.clone()),
            history: Err(failure.clone()),
            hour: Err(failure.clone()),
            nodes: Err(failure.clone()),
            schedules: Err(failure.clone()),
            doctor: None,
        }
    }
}
