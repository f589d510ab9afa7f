//! The final audit: counts rows and Redis's replies, and compares them with the input and with each
//! other.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use dueq::QueueStats;
use hdrhistogram::Histogram;
use rusqlite::Connection;
use serde::Serialize;

use crate::input::{Case, Order};
use crate::replay::Tally;

/// The output of `--json`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Report {
    pub(crate) orders: u64,
    pub(crate) already_reviewed: u64,
    pub(crate) pushed: u64,
    pub(crate) cancelled_in_time: u64,
    pub(crate) races_lost: u64,
    pub(crate) auto_rated: u64,
    pub(crate) replaced_by_review: u64,
    pub(crate) disagreed: u64,
    pub(crate) never_reviewed: u64,
    pub(crate) lost: u64,
    pub(crate) fired_twice: u64,
    pub(crate) fired_early: u64,
    pub(crate) lateness_ms: Lateness,
}

/// Milliseconds from the due time to the start of the handler.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Lateness {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
}

/// The report, the lateness of every firing in microseconds, and the equations that fail.
pub(crate) struct Audit {
    pub(crate) report: Report,
    pub(crate) lateness_us: Histogram<u64>,
    pub(crate) complaints: Vec<String>,
}

pub(crate) fn audit(
    books: &Connection,
    orders: &[Order],
    tally: &Tally,
    stats: &QueueStats,
) -> Result<Audit> {
    let number = |sql: &str| {
        books
            .query_row(sql, [], |row| row.get::<_, u32>(0))
            .map(u64::from)
    };
    let mut lateness_us = Histogram::new(3)?;
    let mut fired = HashSet::new();
    let (mut fired_twice, mut fired_early) = (HashSet::new(), 0);
    let mut rows =
        books.prepare("SELECT order_id, due_ms, fired_ms FROM ratings WHERE due_ms IS NOT NULL")?;
    let mut rows = rows.query([])?;
    while let Some(row) = rows.next()? {
        let (order_id, due_ms, fired_ms): (String, i64, f64) =
            (row.get(0)?, row.get(1)?, row.get(2)?);
        let late_us = ((fired_ms - due_ms as f64) * 1_000.0).round();
        fired_early += u64::from(late_us < 0.0);
        lateness_us.record(late_us.max(0.0) as u64)?;
        if !fired.insert(order_id.clone()) {
            fired_twice.insert(order_id);
        }
    }
    let counted = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let ms = |us: u64| us as f64 / 1_000.0;
    let report = Report {
        orders: number("SELECT count(*) FROM orders")?,
        already_reviewed: counted(&tally.already_reviewed),
        pushed: counted(&tally.pushed),
        cancelled_in_time: counted(&tally.cancelled_in_time),
        races_lost: counted(&tally.races_lost),
        auto_rated: number("SELECT count(*) FROM ratings WHERE rated_by = 'auto'")?,
        replaced_by_review: number(&replaced("true"))?,
        disagreed: number(&replaced("o.stars <> 5"))?,
        never_reviewed: number("SELECT count(*) FROM orders WHERE rated_by = 'auto'")?,
        lost: tally.waiting().difference(&fired).count() as u64,
        fired_twice: fired_twice.len() as u64,
        fired_early,
        lateness_ms: Lateness {
            p50: ms(lateness_us.value_at_quantile(0.5)),
            p99: ms(lateness_us.value_at_quantile(0.99)),
            p999: ms(lateness_us.value_at_quantile(0.999)),
            max: ms(lateness_us.max()),
        },
    };
    let mut complaints = imbalances(&report, orders, stats);
    let unasked = fired.difference(&tally.waiting()).count() as u64;
    let misrated = number(MISRATED)?;
    let wrong = wrong(books, orders)?;
    for (bad, what) in [
        (unasked, "orders fired that were cancelled or never pushed"),
        (
            misrated,
            "orders have no rating in force, or another one than their last",
        ),
        (
            wrong,
            "orders ended with another rating than their buyer gave, or five stars if none",
        ),
    ] {
        if bad > 0 {
            complaints.push(format!("{bad} {what}"));
        }
    }
    Ok(Audit {
        report,
        lateness_us,
        complaints,
    })
}

fn replaced(condition: &str) -> String {
    format!(
        "SELECT count(*) FROM orders o WHERE rated_by = 'buyer' AND {condition}
         AND EXISTS (SELECT 1 FROM ratings r WHERE r.order_id = o.order_id AND r.rated_by = 'auto')"
    )
}

const MISRATED: &str = "SELECT count(*) FROM orders o WHERE stars IS NULL OR (stars, rated_by) IS NOT
    (SELECT stars, rated_by FROM ratings r WHERE r.order_id = o.order_id AND r.stars IS NOT NULL ORDER BY rowid DESC LIMIT 1)";

/// Number of orders with a wrong final rating: it must be the buyer's stars, or five without a
/// review.
fn wrong(books: &Connection, orders: &[Order]) -> Result<u64> {
    let mut rows =
        books.prepare("SELECT order_id, stars, rated_by FROM orders WHERE stars IS NOT NULL")?;
    let found: HashMap<String, (u8, String)> = rows
        .query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))?
        .collect::<Result<_, _>>()?;
    let ends_well = |order: &&Order| {
        let expected = order
            .review
            .map_or((5, "auto"), |review| (review.stars, "buyer"));
        found
            .get(&order.id)
            .is_some_and(|(stars, by)| (*stars, by.as_str()) == expected)
    };
    Ok((orders.len() - orders.iter().filter(ends_well).count()) as u64)
}

/// The equations that must hold but fail.
fn imbalances(report: &Report, orders: &[Order], stats: &QueueStats) -> Vec<String> {
    let cases = |wanted: fn(Case) -> bool| {
        orders.iter().filter(|order| wanted(order.case())).count() as u64
    };
    let (inside, never) = (
        cases(|case| matches!(case, Case::Inside(_))),
        cases(|case| case == Case::Never),
    );
    let late = cases(|case| matches!(case, Case::Late(_)));
    let waiting = report.pushed - report.cancelled_in_time.min(report.pushed);
    let again = stats.crashed + stats.retried + stats.released;
    let left = stats.scheduled + stats.ready + stats.leased + stats.dead;
    let equations = [
        (
            "orders = orders of the input",
            report.orders,
            orders.len() as u64,
        ),
        (
            "already_reviewed + pushed = orders",
            report.already_reviewed + report.pushed,
            report.orders,
        ),
        (
            "cancelled_in_time + races_lost = reviews inside 48 h",
            report.cancelled_in_time + report.races_lost,
            inside,
        ),
        (
            "auto_rated = orders not reviewed inside 48 h + races_lost",
            report.auto_rated,
            late + never + report.races_lost,
        ),
        (
            "replaced_by_review = reviews after 48 h + races_lost",
            report.replaced_by_review,
            late + report.races_lost,
        ),
        (
            "never_reviewed = orders without a review",
            report.never_reviewed,
            never,
        ),
        ("lost = 0", report.lost, 0),
        ("fired_early = 0", report.fired_early, 0),
        // A worker killed between commit and ack leaves a message that is handled again; the order
        // is not rated again.
        (
            "fired_twice = 0, those aside that Redis gave out again",
            report.fired_twice.saturating_sub(again),
            0,
        ),
        ("Redis counts as many pushes", stats.pushed, report.pushed),
        (
            "Redis counts as many cancels",
            stats.cancelled,
            report.cancelled_in_time,
        ),
        (
            "Redis counts an ack for each message not cancelled",
            stats.acked,
            waiting,
        ),
        (
            "Redis granted each of them once, those aside that it gave out again",
            stats.claimed,
            waiting + again,
        ),
        ("Redis holds nothing any more", left, 0),
    ];
    let differ = equations
        .into_iter()
        .filter(|(_, found, expected)| found != expected);
    differ
        .map(|(what, found, expected)| format!("{what}: {found}, not {expected}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::{Review, WINDOW_S};

    /// One order of each case; the review within 48 h lost its race.
    fn balanced() -> (Report, Vec<Order>, QueueStats) {
        let order = |id: &str, after_s: Option<i64>| Order {
            id: id.to_owned(),
            delivered_s: 0,
            review: after_s.map(|at_s| Review { at_s, stars: 5 }),
        };
        let orders = vec![
            order("a", Some(0)),
            order("b", Some(1)),
            order("c", Some(WINDOW_S)),
            order("d", None),
        ];
        let report = Report {
            orders: 4,
            already_reviewed: 1,
            pushed: 3,
            cancelled_in_time: 0,
            races_lost: 1,
            auto_rated: 3,
            replaced_by_review: 2,
            disagreed: 0,
            never_reviewed: 1,
            lost: 0,
            fired_twice: 0,
            fired_early: 0,
            lateness_ms: Lateness {
                p50: 0.0,
                p99: 0.0,
                p999: 0.0,
                max: 0.0,
            },
        };
        let mut stats = QueueStats::default();
        (stats.pushed, stats.claimed, stats.acked) = (3, 3, 3);
        (report, orders, stats)
    }

    #[test]
    fn balanced_figures_give_no_complaint() {
        let (report, orders, stats) = balanced();
        assert_eq!(imbalances(&report, &orders, &stats), Vec::<String>::new());
    }

    #[test]
    fn one_more_of_any_figure_gives_a_complaint() {
        let figures: [fn(&mut Report) -> &mut u64; 11] = [
            |report| &mut report.orders,
            |report| &mut report.already_reviewed,
            |report| &mut report.pushed,
            |report| &mut report.cancelled_in_time,
            |report| &mut report.races_lost,
            |report| &mut report.auto_rated,
            |report| &mut report.replaced_by_review,
            |report| &mut report.never_reviewed,
            |report| &mut report.lost,
            |report| &mut report.fired_twice,
            |report| &mut report.fired_early,
        ];
        for (number, figure) in figures.into_iter().enumerate() {
            let (mut report, orders, stats) = balanced();
            *figure(&mut report) += 1;
            assert_ne!(
                imbalances(&report, &orders, &stats),
                Vec::<String>::new(),
                "figure {number}"
            );
        }
        let counts: [fn(&mut QueueStats) -> &mut u64; 6] = [
            |stats| &mut stats.pushed,
            |stats| &mut stats.cancelled,
            |stats| &mut stats.acked,
            |stats| &mut stats.claimed,
            |stats| &mut stats.leased,
            |stats| &mut stats.dead,
        ];
        for (number, count) in counts.into_iter().enumerate() {
            let (report, orders, mut stats) = balanced();
            *count(&mut stats) += 1;
            assert_ne!(
                imbalances(&report, &orders, &stats),
                Vec::<String>::new(),
                "count {number}"
            );
        }
    }

    #[test]
    fn an_order_handled_again_after_a_crash_balances() {
        let (mut report, orders, mut stats) = balanced();
        (report.fired_twice, stats.claimed, stats.crashed) = (1, 4, 1);
        assert_eq!(imbalances(&report, &orders, &stats), Vec::<String>::new());
    }
}
