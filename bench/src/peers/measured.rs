//! The measurements of a system.

use serde_json::{Value, json};

/// The values of one figure in several rounds.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    rounds: Vec<f64>,
    guess: Option<f64>,
}

impl Figures {
    pub(crate) fn add(&mut self, figure: f64) {
        self.rounds.push(figure);
    }

    /// Sets an estimate, which is used until a round has measured the figure.
    pub(crate) fn guess(&mut self, figure: f64) {
        self.guess = Some(figure);
    }

    pub(crate) fn median(&self) -> Option<f64> {
        let mut sorted = self.rounds.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        match sorted.len() {
            0 => None,
            even if even % 2 == 0 => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
            _ => Some(sorted[middle]),
        }
    }

    /// The best estimate so far.
    pub(crate) fn about(&self) -> f64 {
        self.median().or(self.guess).unwrap_or(1_000.0)
    }
}

/// How late handlers started, in microseconds.
#[derive(Debug, Default)]
pub(crate) struct Lateness(Vec<i64>);

impl Lateness {
    pub(crate) fn add(&mut self, late_us: &[i64]) {
        self.0.extend(late_us);
        self.0.sort_unstable();
    }

    /// The lateness in milliseconds that this share of all messages does not exceed.
    pub(crate) fn quantile_ms(&self, share: f64) -> Option<f64> {
        let rank = (share * self.0.len() as f64).ceil().max(1.0) as usize;
        self.0.get(rank - 1).map(|us| *us as f64 / 1_000.0)
    }

    pub(crate) fn json(&self, curve: bool) -> Value {
        let at = |share| self.quantile_ms(share).map(rounded);
        let early = self.0.iter().filter(|us| **us < 0).count();
        let mut object = json!({
            "p50": at(0.5), "p99": at(0.99), "p999": at(0.999), "max": at(1.0), "min": at(0.0),
            "early": early, "n": self.0.len(),
        });
        if curve {
            let shares = (0..=200)
                .map(|i| f64::from(i) / 200.0)
                .chain([0.998, 0.999, 0.9995]);
            let mut points: Vec<_> = shares
                .filter_map(|share| Some((at(share)?, share)))
                .collect();
            points.sort_by(|a, b| a.1.total_cmp(&b.1));
            object["curve"] = json!(points);
        }
        object
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// All figures of a system.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    pub(crate) push_c64_per_s: Figures,
    pub(crate) push_bulk_per_s: Figures,
    pub(crate) life_per_s: Figures,
    pub(crate) redis_us_per_life: Figures,
    pub(crate) redis_us_per_delayed_life: Figures,
    pub(crate) burst_50k_s: Figures,
    pub(crate) bytes_per_message: Figures,
    pub(crate) client_peak_bytes: Figures,
    pub(crate) idle_requests_per_s: Figures,
    /// The lateness at 1,000 messages a second.
    pub(crate) lateness: Lateness,
    /// The lateness at 10 messages a second.
    pub(crate) lateness_10: Lateness,
    /// Redis's CPU time per message, by the order of the pushes and the number of waiting messages.
    pub(crate) order_us: Vec<(String, u64, f64)>,
    /// The pushed messages that are not delivered yet: their number, due time and cost so far.
    pub(crate) delayed: Option<(u64, u64, Option<f64>)>,
    pub(crate) failures: Vec<String>,
}

impl Measured {
    /// The figures with a single number, by their names in JSON.
    pub(crate) fn figures(&self) -> [(&'static str, &Figures); 9] {
        [
            ("push_c64_per_s", &self.push_c64_per_s),
            ("push_bulk_per_s", &self.push_bulk_per_s),
            ("life_per_s", &self.life_per_s),
            ("redis_us_per_life", &self.redis_us_per_life),
            ("redis_us_per_delayed_life", &self.redis_us_per_delayed_life),
            ("burst_50k_s", &self.burst_50k_s),
            ("bytes_per_message", &self.bytes_per_message),
            ("client_peak_bytes", &self.client_peak_bytes),
            ("idle_requests_per_s", &self.idle_requests_per_s),
        ]
    }

    pub(crate) fn json(&self, curve: bool) -> Value {
        let figures = self
            .figures()
            .map(|(name, figures)| (name.to_owned(), json!(figures.median().map(rounded))));
        let mut object: serde_json::Map<_, _> = figures.into_iter().collect();
        for (name, lateness) in [
            ("lateness_ms", &self.lateness),
            ("lateness_10_ms", &self.lateness_10),
        ] {
            object.insert(
                name.to_owned(),
                if lateness.is_empty() {
                    Value::Null
                } else {
                    lateness.json(curve)
                },
            );
        }
        if !self.order_us.is_empty() {
            let rows = self.order_us.iter();
            let rows: Vec<_> = rows
                .map(|(order, n, us)| json!({"order": order, "n": n, "redis_us": us}))
                .collect();
            object.insert("order".to_owned(), json!(rows));
        }
        if !self.failures.is_empty() {
            object.insert("failures".to_owned(), json!(self.failures));
        }
        Value::Object(object)
    }
}

/// Rounds to three decimals, because no figure is more precise.
fn rounded(figure: f64) -> f64 {
    (figure * 1_000.0).round() / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_between_the_two_middle_ones() {
        let mut figures = Figures::default();
        assert_eq!((figures.median(), figures.about()), (None, 1_000.0));
        figures.guess(7.0);
        assert_eq!((figures.median(), figures.about()), (None, 7.0));
        figures.add(3.0);
        figures.add(1.0);
        assert_eq!(figures.median(), Some(2.0));
        figures.add(9.0);
        assert_eq!((figures.median(), figures.about()), (Some(3.0), 3.0));
    }

    #[test]
    fn quantiles_are_samples_that_the_share_does_not_exceed() {
        let mut lateness = Lateness::default();
        assert_eq!(lateness.quantile_ms(0.5), None);
        lateness.add(&[3_000, 1_000]);
        lateness.add(&[-1_000, 2_000]);
        assert_eq!(lateness.quantile_ms(0.0), Some(-1.0));
        assert_eq!(lateness.quantile_ms(0.5), Some(1.0));
        assert_eq!(lateness.quantile_ms(0.51), Some(2.0));
        assert_eq!(lateness.quantile_ms(1.0), Some(3.0));
        let json = lateness.json(true);
        assert_eq!((&json["early"], &json["n"]), (&json!(1), &json!(4)));
        assert!(
            json["curve"]
                .as_array()
                .is_some_and(|points| points.len() > 200)
        );
    }
}
