//! The reply to history.

use crate::error::Error;
use crate::model::history::times::Times;
use crate::model::history::{Counted, Record};
use crate::protocol::replies::Reply;

/// The records of a partition in order of time. One that does not parse is left out: a field of
/// meta was changed by hand.
pub(crate) fn records(reply: &mut Reply) -> Result<Vec<Record>, Error> {
    let texts = reply.body.texts()?;
    Ok(texts.iter().filter_map(|text| record(text)).collect())
}

fn record(text: &str) -> Option<Record> {
    // Later releases may add parts, and numbers at the end of a part.
    let mut parts = text.split('|');
    let at_ms = parts.next()?.parse().ok()?;
    let (counters, states) = (numbers(parts.next()?)?, numbers(parts.next()?)?);
    let counted = Counted {
        counters,
        lateness: Times::parse(parts.next()?)?,
        handling: Times::parse(parts.next()?)?,
    };
    Some(Record {
        at_ms,
        counted,
        states,
    })
}

fn numbers<const N: usize>(text: &str) -> Option<[u64; N]> {
    let mut words = text.split(' ');
    let mut numbers = [0; N];
    for number in &mut numbers {
        *number = words.next()?.parse().ok()?;
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTERS: &str = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15";

    #[test]
    fn a_record_is_read_with_what_a_later_release_adds() {
        let plain = record(&format!("1700|{COUNTERS}|1 2 3 4|5 6 7|")).expect("a record");
        assert_eq!((plain.at_ms, plain.states), (1_700, [1, 2, 3, 4]));
        assert_eq!(plain.counted.counters[14], 15);
        assert_eq!(plain.counted.lateness.count(), 13);
        let later = format!("1700|{COUNTERS} 16|1 2 3 4 5|5 6 7||new");
        assert_eq!(record(&later), Some(plain));
    }

    #[test]
    fn a_text_that_is_no_record_is_left_out() {
        let bad = [
            String::new(),
            "x".to_owned(),
            format!("1700|{COUNTERS}|1 2 3 4|"),
            format!("1700|{COUNTERS}|1 2 3|0 1|"),
            "1700|1 2 3|1 2 3 4|0 1|".to_owned(),
            format!("-1|{COUNTERS}|1 2 3 4|0 1|"),
            format!("1700|{COUNTERS}|1 2 3 4|68 1|"),
            format!("1700|{COUNTERS}|1 2 3 4||0 x"),
        ];
        for text in bad {
            assert_eq!(record(&text), None, "{text}");
        }
    }
}
