//! Groups the items of an ack by claim, because ARGV names each claim once. Also gives each result
//! back to its own item.

use crate::batch::item::Pending;

/// The order in which the items of a batch are sent: items of one claim are adjacent.
pub(crate) struct ByClaim {
    /// Indexes into the batch, in the order of sending.
    order: Vec<usize>,
    /// For each claim the number of its items, as text for ARGV.
    counts: Vec<String>,
}

fn token<T>(batch: &[Pending<T>], index: usize) -> &[u8] {
    batch[index]
        .item
        .granted
        .as_ref()
        .map_or(&[], |granted| granted.token())
}

impl ByClaim {
    pub(crate) fn of<T>(batch: &[Pending<T>]) -> Self {
        let mut order: Vec<usize> = (0..batch.len()).collect();
        order.sort_by_key(|index| token(batch, *index));
        let counts = Self::claims(&order, batch)
            .map(|items| items.len().to_string())
            .collect();
        Self { order, counts }
    }

    fn claims<'a, T>(
        order: &'a [usize],
        batch: &'a [Pending<T>],
    ) -> impl Iterator<Item = &'a [usize]> {
        order.chunk_by(move |one, other| token(batch, *one) == token(batch, *other))
    }

    /// Returns ARGV: for each claim its token, the number of its ids, and the ids.
    pub(crate) fn args<'a, T>(&'a self, batch: &'a [Pending<T>]) -> Vec<&'a [u8]> {
        let mut args = Vec::with_capacity(batch.len() + 2 * self.counts.len());
        for (items, count) in Self::claims(&self.order, batch).zip(&self.counts) {
            args.extend([token(batch, items[0]), count.as_bytes()]);
            args.extend(
                items
                    .iter()
                    .filter_map(|index| batch[*index].item.granted.as_ref())
                    .map(|granted| granted.id()),
            );
        }
        args
    }

    /// Reorders results, which come in the order of sending, into the order of the batch.
    pub(crate) fn in_batch_order<R>(&self, results: Vec<R>) -> Vec<R> {
        let mut indexed: Vec<_> = self.order.iter().zip(results).collect();
        indexed.sort_by_key(|(index, _)| **index);
        indexed.into_iter().map(|(_, result)| result).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use tokio::sync::Semaphore;

    use super::*;
    use crate::batch::item::{Answer, Item, OfClaim};
    use crate::server::patience::Repeat;

    impl OfClaim for (&'static str, &'static str) {
        fn id(&self) -> &[u8] {
            self.0.as_bytes()
        }

        fn token(&self) -> &[u8] {
            self.1.as_bytes()
        }
    }

    #[test]
    fn argv_names_each_claim_once_and_results_fit_their_items() {
        let room = Arc::new(Semaphore::new(10));
        let acks = [
            ("a", "T2"),
            ("b", "T1"),
            ("a", "T2"),
            ("c", "T3"),
            ("d", "T1"),
            ("a", "T1"),
        ];
        let pending = |ack: (&'static str, &'static str)| Pending {
            item: Item {
                granted: Some(Arc::new(ack)),
                args: Vec::new(),
                repeat: Repeat::Harmless,
            },
            since: Instant::now(),
            answer: Answer::channel().0,
            _room: Arc::clone(&room).try_acquire_owned().expect("room"),
        };
        let batch: Vec<Pending<()>> = acks.into_iter().map(pending).collect();
        let by_claim = ByClaim::of(&batch);
        let args: Vec<_> = by_claim
            .args(&batch)
            .into_iter()
            .map(|arg| std::str::from_utf8(arg).expect("text"))
            .collect();
        assert_eq!(
            args,
            [
                "T1", "3", "b", "d", "a", "T2", "2", "a", "a", "T3", "1", "c"
            ]
        );
        let results = vec!["b1", "d1", "a1", "a2 first", "a2 second", "c3"];
        assert_eq!(
            by_claim.in_batch_order(results),
            ["a2 first", "b1", "a2 second", "c3", "d1", "a1"]
        );
    }
}
