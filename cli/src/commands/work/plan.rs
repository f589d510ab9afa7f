//! Which queues `dueq work` serves, and each one's share of the handlers.

use std::collections::BTreeMap;

use dueq::Share;

use crate::output::{Usage, visible};

/// The queues and patterns of the command line, in its order.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) served: Vec<Served>,
}

/// A queue, or the queues that a pattern finds.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Served {
    pub(super) name: String,
    pub(super) is_pattern: bool,
    pub(super) share: Share,
}

/// The options that the plan is read from.
#[derive(Debug, Default)]
pub(super) struct Request<'a> {
    /// NAME, NAME=WEIGHT, PATTERN or PATTERN=WEIGHT.
    pub(super) queues: &'a [String],
    /// NAME=N.
    pub(super) reserves: &'a [String],
    /// NAME=N or PATTERN=N.
    pub(super) maxima: &'a [String],
    pub(super) concurrency: usize,
}

impl Plan {
    /// Reads and checks the options.
    pub(super) fn read(request: &Request<'_>) -> Result<Self, Usage> {
        let reserves = numbers("--reserve", request.reserves)?;
        let maxima = numbers("--max", request.maxima)?;
        let mut plan = Self { served: Vec::new() };
        for text in request.queues {
            let (name, weight) = name_and_weight(text)?;
            if plan.served.iter().any(|served| served.name == name) {
                return Err(Usage(format!(
                    "the queue {} is given twice; name it once",
                    visible(name.as_bytes())
                )));
            }
            let mut share = Share::weight(weight);
            if let Some(reserve) = reserves.get(name) {
                share = share.reserve(*reserve);
            }
            if let Some(max) = maxima.get(name) {
                check_max(name, *max, reserves.get(name).copied().unwrap_or(0))?;
                share = share.max(*max);
            }
            plan.served.push(Served {
                name: name.to_owned(),
                is_pattern: is_pattern(name),
                share,
            });
        }
        for (option, given) in [("--reserve", &reserves), ("--max", &maxima)] {
            if let Some(name) = given.keys().find(|name| !plan.serves(name)) {
                return Err(Usage(format!(
                    "{option} names {}, which this worker does not serve; it serves {}",
                    visible(name.as_bytes()),
                    plan.shown()
                )));
            }
        }
        if let Some(name) = reserves.keys().find(|name| is_pattern(name)) {
            return Err(Usage(format!(
                "--reserve {}: a pattern takes no reserve, because it can find any number of queues; \
                 name the queue, or use --max",
                visible(name.as_bytes())
            )));
        }
        let reserved = reserves
            .values()
            .fold(0_usize, |sum, reserve| sum.saturating_add(*reserve));
        if reserved > request.concurrency {
            return Err(Usage(format!(
                "--reserve keeps {reserved} handlers, but --concurrency is {}; raise it or reserve fewer",
                request.concurrency
            )));
        }
        // Handlers that are not reserved are all that the other queues can get.
        if reserved > 0
            && reserved == request.concurrency
            && let Some(left) = plan.served.iter().find(|served| {
                reserves
                    .get(&*served.name)
                    .is_none_or(|reserve| *reserve == 0)
            })
        {
            return Err(Usage(format!(
                "--reserve keeps all {reserved} handlers, so {} would have none; raise --concurrency",
                visible(left.name.as_bytes())
            )));
        }
        Ok(plan)
    }

    /// Whether the worker can serve more than one queue, so that its output must name the queue.
    pub(super) fn is_plural(&self) -> bool {
        self.served.len() > 1 || self.served.iter().any(|served| served.is_pattern)
    }

    /// The first pattern.
    pub(super) fn pattern(&self) -> Option<&str> {
        let pattern = self.served.iter().find(|served| served.is_pattern);
        pattern.map(|served| &*served.name)
    }

    /// The queues and patterns for people.
    pub(super) fn shown(&self) -> String {
        visible(self.names().join(", ").as_bytes())
    }

    pub(super) fn names(&self) -> Vec<&str> {
        self.served.iter().map(|served| &*served.name).collect()
    }

    fn serves(&self, name: &str) -> bool {
        self.served.iter().any(|served| served.name == name)
    }
}

fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?'])
}

/// Splits NAME or NAME=WEIGHT. A queue's name can contain `=`, so the last one counts, and only
/// before a number.
fn name_and_weight(text: &str) -> Result<(&str, u32), Usage> {
    let Some((name, digits)) = split_number(text) else {
        return Ok((text, 1));
    };
    match digits.parse() {
        Ok(1..) => Ok((name, digits.parse().unwrap_or(1))),
        _ => Err(Usage(format!(
            "{}: the weight {digits} is not in the range from 1 to {}",
            visible(text.as_bytes()),
            u32::MAX
        ))),
    }
}

/// The parts around the last `=`, if only digits follow it.
fn split_number(text: &str) -> Option<(&str, &str)> {
    text.rsplit_once('=').filter(|(name, digits)| {
        !name.is_empty() && !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Reads the values of an option that is repeated for several queues.
fn numbers<'a>(option: &str, texts: &'a [String]) -> Result<BTreeMap<&'a str, usize>, Usage> {
    let mut found = BTreeMap::new();
    for text in texts {
        let number =
            split_number(text).and_then(|(name, digits)| Some((name, digits.parse().ok()?)));
        let Some((name, number)) = number else {
            return Err(Usage(format!(
                "{option} needs NAME=N, such as orders=2, not {}",
                visible(text.as_bytes())
            )));
        };
        if found.insert(name, number).is_some() {
            return Err(Usage(format!(
                "{option} names {} twice",
                visible(name.as_bytes())
            )));
        }
    }
    Ok(found)
}

fn check_max(name: &str, max: usize, reserve: usize) -> Result<(), Usage> {
    let name = visible(name.as_bytes());
    if max == 0 {
        return Err(Usage(format!(
            "--max {name}=0: the queue would never be handled; give at least 1, or leave it out"
        )));
    }
    if max < reserve {
        return Err(Usage(format!(
            "--max {name}={max} is below its --reserve of {reserve}"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(queues: &str, reserves: &str, maxima: &str) -> Result<Plan, String> {
        let words =
            |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
        let (queues, reserves, maxima) = (words(queues), words(reserves), words(maxima));
        Plan::read(&Request {
            queues: &queues,
            reserves: &reserves,
            maxima: &maxima,
            concurrency: 4,
        })
        .map_err(|error| error.to_string())
    }

    fn served(name: &str, is_pattern: bool, share: Share) -> Served {
        Served {
            name: name.to_owned(),
            is_pattern,
            share,
        }
    }

    #[test]
    fn names_and_patterns_take_weights_and_limits() {
        let plan = read("a=6 mail-*=2 b x=y", "a=2", "a=3 mail-*=1").expect("a plan");
        assert_eq!(
            plan.served,
            [
                served("a", false, Share::weight(6).reserve(2).max(3)),
                served("mail-*", true, Share::weight(2).max(1)),
                served("b", false, Share::weight(1)),
                served("x=y", false, Share::weight(1)),
            ]
        );
        assert!(plan.is_plural());
        assert!(!read("a", "", "").expect("a plan").is_plural());
        assert!(read("a*", "", "").expect("a plan").is_plural());
    }

    #[test]
    fn wrong_values_are_refused_with_the_reason() {
        for (queues, reserves, maxima, reason) in [
            ("a=0", "", "", "the weight 0 is not in the range"),
            ("a=4294967296", "", "", "the weight 4294967296 is not"),
            ("a a", "", "", "a is given twice"),
            ("a=1 a=2", "", "", "a is given twice"),
            ("a* a*=2", "", "", "a* is given twice"),
            (
                "a",
                "b=1",
                "",
                "--reserve names b, which this worker does not serve; it serves a",
            ),
            ("a", "", "b=1", "--max names b"),
            ("a", "a", "", "--reserve needs NAME=N"),
            ("a", "a=x", "", "--reserve needs NAME=N"),
            ("a", "a=-1", "", "--reserve needs NAME=N"),
            (
                "a",
                "a=99999999999999999999999",
                "",
                "--reserve needs NAME=N",
            ),
            ("a", "a=1 a=2", "", "--reserve names a twice"),
            ("a*", "a*=1", "", "a pattern takes no reserve"),
            (
                "a b",
                "a=3 b=2",
                "",
                "--reserve keeps 5 handlers, but --concurrency is 4",
            ),
            ("a b", "a=4", "", "so b would have none"),
            ("a", "", "a=0", "would never be handled"),
            ("a", "a=3", "a=2", "--max a=2 is below its --reserve of 3"),
        ] {
            let refused = read(queues, reserves, maxima).expect_err(reason);
            assert!(
                refused.contains(reason),
                "{queues} {reserves} {maxima}: {refused}"
            );
        }
    }
}
