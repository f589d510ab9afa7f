//! Calls that name an id: sent to the partition of the id, and routed again if the map has changed.

use crate::batch::{Answered, BatchVerb, Batcher, Item};
use crate::error::Error;
use crate::model::durability::Durability;
use crate::partition::Producers;
use crate::protocol::replies::Reply;
use crate::protocol::verbs::Verb;
use crate::router::Routing;
use crate::server::patience::Repeat;

/// Sends an item along with the others that wait at the partition of its id, and returns its
/// result.
pub(super) async fn submit<V: BatchVerb>(
    routing: &mut Routing<'_>,
    durability: Durability,
    batcher: &impl Fn(&Producers) -> &Batcher<V>,
    mut item: Item,
) -> Result<V::Output, Error> {
    loop {
        let partition = routing.partition(item.id()).await?;
        let producers = partition.producers(durability).await?;
        match batcher(&producers).submit_routed(item).await {
            Answered::Result(result) => return result,
            Answered::Remapped(back, refusal) => {
                let resolved = routing.refused(&[(&partition, &refusal)]).await;
                resolved.map_err(|error| error.like(&refusal))?;
                if !routing.may_send_again(&refusal) {
                    return Err(refusal);
                }
                item = back;
            }
        }
    }
}

/// Calls a script that takes this id and no batch, with further arguments after the id.
pub(super) async fn call(
    routing: &mut Routing<'_>,
    verb: Verb,
    id: &[u8],
    more: &[&[u8]],
    repeat: Repeat,
) -> Result<Reply, Error> {
    let args = [&[id], more].concat();
    loop {
        let partition = routing.partition(id).await?;
        match partition.call_fenced(verb, &args, repeat).await {
            Err(refusal) if refusal.is_remapped() => {
                routing.refused(&[(&partition, &refusal)]).await?;
            }
            result => return result,
        }
    }
}
