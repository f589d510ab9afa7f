//! Checks of the replies to `dues`, `nodes`, `held` and `history`, and of the messages that claims
//! grant.

use super::wire::Sent;
use crate::error::Error;
use crate::model::history::{HistoryResolution, points};
use crate::protocol::replies::Reply;
use crate::protocol::results::claim::Claim;
use crate::protocol::results::{inspect, nodes as nodes_of};

pub(super) fn dues(sent: &Sent, reply: Reply) -> Result<(), Error> {
    let dues = inspect::dues(reply)?;
    assert_eq!(dues.counts.len(), sent.len(&[1]));
    for (place, count) in dues.counts.iter().enumerate() {
        assert_eq!(i64::try_from(*count), Ok(sent.integer(&[1, place])));
    }
    let last = sent.integer(&[2]);
    assert_eq!(dues.last_ms, u64::try_from(last).ok());
    Ok(())
}

pub(super) fn nodes(sent: &Sent, reply: Reply) -> Result<(), Error> {
    let nodes = nodes_of::nodes(reply)?;
    let attending = sent.len(&[2]);
    assert_eq!(nodes.len(), attending + sent.len(&[4]));
    for (place, node) in nodes.iter().enumerate() {
        let is_attending = place < attending;
        let at = match is_attending {
            true => [2, place],
            false => [4, place - attending],
        };
        let number = |part| sent.integer(&[at[0], at[1], part]);
        assert_eq!(node.id, sent.text(&[at[0], at[1], 0]));
        assert_eq!(i64::try_from(node.silent_ms), Ok(number(1)));
        assert_eq!(node.attends, usize::from(is_attending));
        if is_attending {
            assert_eq!(i64::try_from(node.parked_ms), Ok(number(2)));
            assert_eq!(node.leads, usize::from(number(3) == 1));
        }
    }
    Ok(())
}

pub(super) fn held(sent: &Sent, reply: Reply) -> Result<(), Error> {
    let (claim, more) = Claim::decode_held(reply, [7; 16])?;
    assert_eq!(i64::try_from(more), Ok(sent.integer(&[7])));
    granted(sent, &claim);
    Ok(())
}

pub(super) fn history(sent: &Sent, mut reply: Reply) -> Result<(), Error> {
    let records = inspect::records(&mut reply)?;
    assert!(records.len() <= sent.len(&[1]));
    let points = points(HistoryResolution::Hours, 0, &[records.clone(), records]);
    assert!(points.is_sorted_by_key(|point| point.start_ms));
    Ok(())
}

/// Asserts that the decoded claim has the values of the reply that was sent.
pub(super) fn granted(sent: &Sent, claim: &Claim) {
    assert_eq!(i64::try_from(claim.left), Ok(sent.integer(&[1])));
    let count = claim.granted.len();
    assert_eq!(
        (count, count),
        (sent.len(&[3]), sent.len(&[4])),
        "each id and each payload belongs to a delivery"
    );
    assert!(
        [1, count].contains(&sent.len(&[5])),
        "one detail for all, or one for each"
    );
    for (place, granted) in claim.granted.iter().enumerate() {
        assert_eq!(granted.id, sent.bytes(&[3, place]));
        assert_eq!(granted.payload, sent.bytes(&[4, place]));
        let details = sent.text(&[5, if sent.len(&[5]) == 1 { 0 } else { place }]);
        let mut words = details.split(' ');
        let mut count = || {
            words
                .next()
                .and_then(|word| word.parse::<u64>().ok())
                .expect("a count")
        };
        assert_eq!(
            (granted.due_ms, u64::from(granted.attempt)),
            (count(), count().min(u64::from(u32::MAX)))
        );
        let options: Vec<&str> = words.collect();
        let parent = granted.trace_parent.as_ref();
        assert!(
            parent.is_none_or(|parent| options.contains(&&*format!("traceparent={parent}"))),
            "{details}"
        );
        let mut crashes = options
            .iter()
            .rev()
            .filter_map(|word| word.strip_prefix("crashes="));
        assert_eq!(
            granted.crashes,
            crashes.next().map_or(0, |count| count.parse().unwrap_or(0)),
            "{details}"
        );
        let last = |name: &str| {
            let values = options.iter().rev();
            values.filter_map(|word| word.strip_prefix(name)).next()
        };
        let number = |name| last(name).map(str::parse::<u32>);
        assert_eq!(
            granted.cost,
            number("cost=").map_or(1, |cost| cost.unwrap_or(1))
        );
        assert_eq!(
            granted.snoozes,
            number("snoozes=").map_or(0, |count| count.unwrap_or(0))
        );
        let expires = last("expires_by=").or(last("expires="));
        assert!(
            granted.expires_at_ms.is_none() || expires.is_some(),
            "{details}"
        );
        assert_eq!(
            granted.deadline_ms,
            sent.integer(&[2]).max(0).unsigned_abs()
        );
        assert_eq!(
            (granted.token, granted.claimed_us),
            ([7; 16], sent.integer(&[0, 0]))
        );
    }
}
