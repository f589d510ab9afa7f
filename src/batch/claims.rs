//! An ack names each claim once: its items are sent by their tokens, and each answer goes back to its own place.

use crate::batch::Pending;

/// The places of the items, those of one claim beside each other, and how many each claim has, as text.
pub(crate) struct ByClaim {
    order: Vec<usize>,
    counts: Vec<String>,
}

fn token(batch: &[Pending], place: usize) -> &[u8] {
    batch[place]
        .item
        .granted
        .as_ref()
        .map_or(&[], |granted| granted.token())
}

impl ByClaim {
    pub(crate) fn of(batch: &[Pending]) -> Self {
        let mut order: Vec<usize> = (0..batch.len()).collect();
        order.sort_by_key(|place| token(batch, *place));
        let counts = Self::claims(&order, batch)
            .map(|places| places.len().to_string())
            .collect();
        Self { order, counts }
    }

    fn claims<'a>(order: &'a [usize], batch: &'a [Pending]) -> impl Iterator<Item = &'a [usize]> {
        order.chunk_by(move |one, other| token(batch, *one) == token(batch, *other))
    }

    /// ARGV: of each claim the token, how many ids, and these.
    pub(crate) fn args<'a>(&'a self, batch: &'a [Pending]) -> Vec<&'a [u8]> {
        let mut args = Vec::with_capacity(batch.len() + 2 * self.counts.len());
        for (places, count) in Self::claims(&self.order, batch).zip(&self.counts) {
            args.extend([token(batch, places[0]), count.as_bytes()]);
            args.extend(
                places
                    .iter()
                    .filter_map(|place| batch[*place].item.granted.as_ref())
                    .map(|granted| granted.id()),
            );
        }
        args
    }

    /// What was answered in the order in which the items were sent, in their own.
    pub(crate) fn answers<T>(&self, told: Vec<T>) -> Vec<T> {
        let mut answers: Vec<_> = self.order.iter().zip(told).collect();
        answers.sort_by_key(|(place, _)| **place);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use tokio::sync::{Semaphore, oneshot};

    use super::*;
    use crate::batch::{Item, OfClaim};
    use crate::server::lane::Repeat;

    impl OfClaim for (&'static str, &'static str) {
        fn id(&self) -> &[u8] {
            self.0.as_bytes()
        }

        fn token(&self) -> &[u8] {
            self.1.as_bytes()
        }
    }

    #[test]
    fn each_claim_is_named_once_and_each_answer_finds_its_place() {
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
            answer: oneshot::channel().0,
            _room: Arc::clone(&room).try_acquire_owned().expect("room"),
        };
        let batch: Vec<Pending> = acks.into_iter().map(pending).collect();
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
        let told = vec!["b1", "d1", "a1", "a2 first", "a2 second", "c3"];
        assert_eq!(
            by_claim.answers(told),
            ["a2 first", "b1", "a2 second", "c3", "d1", "a1"]
        );
    }
}
