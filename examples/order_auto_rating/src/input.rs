//! Reads the orders from CSV and checks all of them before the replay starts.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use jiff::civil::DateTime;
use serde::Deserialize;

/// Time from an order's delivery to its automatic rating.
pub(crate) const WINDOW_S: i64 = 48 * 3600;

/// One delivered order and its review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) id: String,
    /// Naive local time in seconds, without a zone.
    pub(crate) delivered_s: i64,
    pub(crate) review: Option<Review>,
}

/// A buyer's rating.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Review {
    pub(crate) at_s: i64,
    pub(crate) stars: u8,
}

/// When the review came, according to the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Case {
    /// At or before the delivery: no message is needed.
    Before(Review),
    /// After the delivery and less than 48 h after it.
    Inside(Review),
    /// At least 48 h after the delivery. At exactly 48 h a review is late, because the automatic
    /// rating is due then.
    Late(Review),
    Never,
}

impl Order {
    pub(crate) fn case(&self) -> Case {
        match self.review {
            None => Case::Never,
            Some(review) if review.at_s <= self.delivered_s => Case::Before(review),
            Some(review) if review.at_s - self.delivered_s < WINDOW_S => Case::Inside(review),
            Some(review) => Case::Late(review),
        }
    }

    /// Time of the order's last event.
    pub(crate) fn last_s(&self) -> i64 {
        let rated = self.delivered_s + WINDOW_S;
        self.review.map_or(rated, |review| review.at_s.max(rated))
    }
}

#[derive(Deserialize)]
struct Row {
    order_id: String,
    delivered_at: String,
    reviewed_at: String,
    review_score: String,
}

/// Reads the columns `order_id`, `delivered_at`, `reviewed_at` and `review_score`; the last two are
/// empty without a review. An error names the line.
pub(crate) fn read(path: &Path) -> Result<Vec<Order>> {
    let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    parse(&text).with_context(|| format!("{} is not fit", path.display()))
}

fn parse(text: &[u8]) -> Result<Vec<Order>> {
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .from_reader(text);
    let (mut orders, mut lines) = (Vec::new(), HashMap::new());
    let headers = reader.headers().context("line 1")?.clone();
    for name in ["order_id", "delivered_at", "reviewed_at", "review_score"] {
        ensure!(
            headers.iter().any(|header| header == name),
            "line 1: there is no column {name}"
        );
    }
    let mut record = csv::StringRecord::new();
    loop {
        match reader.read_record(&mut record) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => bail!(
                "line {}: {error}",
                error.position().map_or(0, csv::Position::line)
            ),
        }
        let line = record.position().map_or(0, csv::Position::line);
        let order = record
            .deserialize::<Row>(Some(&headers))
            .map_err(anyhow::Error::from)
            .and_then(|row| order(&row))
            .with_context(|| format!("line {line}"))?;
        if let Some(first) = lines.insert(order.id.clone(), line) {
            bail!(
                "line {line}: the order {} is in line {first} already",
                order.id
            );
        }
        orders.push(order);
    }
    ensure!(!orders.is_empty(), "it holds no orders");
    Ok(orders)
}

fn order(row: &Row) -> Result<Order> {
    let id = row.order_id.clone();
    ensure!(!id.is_empty(), "the order_id is empty");
    ensure!(
        id.len() <= 100 && !id.contains(char::is_control),
        "the order_id must be up to 100 plain characters"
    );
    let delivered_s = seconds(&row.delivered_at).context("delivered_at")?;
    let review = match (row.reviewed_at.as_str(), row.review_score.as_str()) {
        ("", "") => None,
        ("", _) => bail!("there is a review_score but no reviewed_at"),
        (at, score) => {
            let stars = score.parse().ok().filter(|stars| (1..=5).contains(stars));
            Some(Review {
                at_s: seconds(at).context("reviewed_at")?,
                stars: stars.with_context(|| {
                    format!("the review_score {score:?} is not a number from 1 to 5")
                })?,
            })
        }
    };
    Ok(Order {
        id,
        delivered_s,
        review,
    })
}

/// A naive time as seconds since 1970, as if it were UTC: only differences count.
fn seconds(text: &str) -> Result<i64> {
    let time: DateTime = text
        .parse()
        .map_err(|_| anyhow::anyhow!("{text:?} is not a time like 2018-05-03T17:25:40"))?;
    let since = time.duration_since(DateTime::constant(1970, 1, 1, 0, 0, 0, 0));
    Ok(since.as_secs())
}

/// The day of a naive time, for display.
pub(crate) fn day(at_s: i64) -> String {
    let epoch = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
    epoch
        .checked_add(jiff::SignedDuration::from_secs(at_s))
        .map_or_else(|_| String::new(), |time| time.date().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "order_id,delivered_at,reviewed_at,review_score\n";

    fn one(line: &str) -> Result<Order> {
        parse(format!("{HEAD}{line}\n").as_bytes()).map(|mut orders| orders.remove(0))
    }

    fn case(reviewed_at: &str) -> Case {
        one(&format!("a,2018-01-01T12:00:00,{reviewed_at},4"))
            .expect("valid")
            .case()
    }

    #[test]
    fn a_review_belongs_to_one_side_of_each_edge() {
        assert!(matches!(case("2017-12-31T00:00:00"), Case::Before(_)));
        assert!(
            matches!(case("2018-01-01T12:00:00"), Case::Before(_)),
            "at the delivery"
        );
        assert!(matches!(case("2018-01-01T12:00:01"), Case::Inside(_)));
        assert!(matches!(case("2018-01-03T11:59:59"), Case::Inside(_)));
        assert!(
            matches!(case("2018-01-03T12:00:00"), Case::Late(_)),
            "at exactly 48 h it is late"
        );
        assert_eq!(
            one("a,2018-01-01T12:00:00,,").expect("valid").case(),
            Case::Never
        );
    }

    #[test]
    fn times_are_subtracted_as_they_are_written() {
        // In Sao Paulo the clock went back by an hour that night; the naive difference is 48 h.
        let order = one("a,2018-02-16T12:00:00,2018-02-18T12:00:00,1").expect("valid");
        assert!(
            matches!(order.case(), Case::Late(review) if review.at_s - order.delivered_s == WINDOW_S)
        );
        assert_eq!(day(order.delivered_s), "2018-02-16");
    }

    #[test]
    fn error_names_the_line_and_the_fault() {
        for (line, reason) in [
            (",2018-01-01T12:00:00,,", "order_id is empty"),
            ("b,yesterday,,", "delivered_at"),
            ("b,2018-02-30T12:00:00,,", "2018-02-30"),
            ("b,,,", "delivered_at"),
            ("b,2018-01-01T12:00:00,2018-01-02T12:00:00,6", "from 1 to 5"),
            ("b,2018-01-01T12:00:00,2018-01-02T12:00:00,", "from 1 to 5"),
            ("b,2018-01-01T12:00:00,,3", "no reviewed_at"),
            ("b,2018-01-01T12:00:00", "fields"),
            ("a,2018-01-01T12:00:00,,", "line 2 already"),
        ] {
            let text = format!("{HEAD}a,2018-01-01T12:00:00,,\n{line}\n");
            let error = format!("{:#}", parse(text.as_bytes()).expect_err(line));
            assert!(
                error.contains("line 3") && error.contains(reason),
                "{line}: {error}"
            );
        }
        for (text, reason) in [
            ("", "no column order_id"),
            ("order_id,delivered_at\n", "no column"),
            (HEAD, "no orders"),
        ] {
            let error = format!("{:#}", parse(text.as_bytes()).expect_err(text));
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
