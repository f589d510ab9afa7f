//! The replies to dues, nodes, held and history.

use super::wire::Sent;
use crate::error::Error;
use crate::model::history::{HistoryResolution, points};
use crate::protocol::replies::Reply;
use crate::protocol::results::claim::Claim;
use crate::protocol::results::inspect;

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
    let nodes = inspect::nodes(reply)?;
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
    super::granted(sent, &claim);
    Ok(())
}

pub(super) fn history(sent: &Sent, mut reply: Reply) -> Result<(), Error> {
    let records = inspect::records(&mut reply)?;
    assert!(records.len() <= sent.len(&[1]));
    let points = points(HistoryResolution::Hours, 0, &[records.clone(), records]);
    assert!(points.is_sorted_by_key(|point| point.start_ms));
    Ok(())
}
