//! What operators do with a whole queue: pause, resume, requeue all, purge, delete.

use crate::error::{Error, ErrorKind};
use crate::model::outcomes::State;
use crate::protocol::limits::MAX_ITEMS;
use crate::protocol::results::administer::Step;
use crate::protocol::verbs::Verb;
use crate::queue::Queue;
use crate::server::patience::{Repeat, patiently};

impl Queue {
    /// Whether there is such a queue: it exists from its first push, pause or configure on, until it is deleted.
    ///
    /// Takes no more rights than any role has.
    pub async fn exists(&self) -> Result<bool, Error> {
        patiently(|| self.control().has(self.partition().keys().meta())).await
    }

    /// Revives all messages that are dead now, the oldest first, a thousand a call; returns how many. One that dies again
    /// meanwhile is left alone. Dropped or failed halfway, some are revived: calling it again does the rest.
    pub async fn requeue_all(&self) -> Result<u64, Error> {
        let (mut total, mut until) = (0, String::new());
        loop {
            let limit = MAX_ITEMS.to_string();
            let args: [&[u8]; 3] = [b"oldest", limit.as_bytes(), until.as_bytes()];
            let reply = self.call(Verb::Requeue, &args, Repeat::Unsafe).await;
            let step = Step::decode(reply.map_err(|error| after(error, total, "requeued"))?)?;
            if until.is_empty() {
                until = (step.now_us / 1_000).to_string();
            }
            total += step.done;
            // The first call finds only messages that were dead before it; `until` makes the later
            // ones leave out messages that died since.
            if step.left == 0 {
                return Ok(total);
            }
        }
    }

    /// Removes what is scheduled, ready or dead, a thousand messages a call, until the state was found empty or as many are
    /// gone as were there at the start; returns how many. Leased messages cannot be purged:
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput).
    pub async fn purge(&self, state: State) -> Result<u64, Error> {
        if state == State::Leased {
            return Err(Error::invalid(
                "leased messages cannot be purged: their handlers have them",
            ));
        }
        let (mut total, mut expected) = (0, None);
        loop {
            let limit = MAX_ITEMS.to_string();
            let reply = self
                .call(
                    Verb::Purge,
                    &[state.as_str().as_bytes(), limit.as_bytes()],
                    Repeat::Unsafe,
                )
                .await;
            let step = Step::decode(reply.map_err(|error| after(error, total, "purged"))?)?;
            total += step.done;
            let enough = total >= *expected.get_or_insert(step.done + step.left);
            if step.left == 0 || step.done == 0 || enough {
                return Ok(total);
            }
        }
    }

    /// From now on nothing is claimed; pushes, settles and the reaping of lost leases go on.
    pub async fn pause(&self) -> Result<(), Error> {
        self.call(Verb::Pause, &[], Repeat::Harmless)
            .await
            .map(drop)
    }

    /// Ends a pause.
    pub async fn resume(&self) -> Result<(), Error> {
        self.call(Verb::Resume, &[], Repeat::Harmless)
            .await
            .map(drop)
    }

    /// Removes the queue with everything in it, in one step; whether there was one. Deliveries that handlers hold answer
    /// `Gone` from then on; live workers report that the store was emptied, and serve the queue again once it is pushed to.
    /// Not repeated when the reply is lost.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the queue has another layout, and
    /// [`ErrorKind::Server`](crate::ErrorKind::Server) if another program uses one of its keys, by the key's type; in both cases
    /// nothing is deleted.
    pub async fn delete(&self) -> Result<bool, Error> {
        match self.call(Verb::Stats, &[], Repeat::Harmless).await {
            // A damaged queue can be deleted, too: of a foreign key its type tells.
            Err(error) if error.kind() != ErrorKind::Server => Err(error),
            _ => self.control().delete_keys(self.partition().keys()).await,
        }
    }
}

/// What is told of a call in steps that failed when earlier steps had dealt with `total` messages.
fn after(error: Error, total: u64, did: &str) -> Error {
    if total == 0 {
        error
    } else {
        error.after(&format!("{total} messages were {did}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Applied;

    #[test]
    fn a_failed_step_tells_what_the_steps_before_it_did() {
        let failed = |applied| Error::new(ErrorKind::Timeout, applied, "no answer");
        assert_eq!(
            after(failed(Applied::No), 0, "purged").was_applied(),
            Applied::No
        );
        let some = after(failed(Applied::No), 2_000, "purged");
        assert_eq!(
            (some.was_applied(), some.kind()),
            (Applied::Yes, ErrorKind::Timeout)
        );
        assert!(
            some.to_string()
                .contains("2000 messages were purged before that"),
            "{some}"
        );
        assert_eq!(
            after(failed(Applied::Unknown), 2_000, "purged").was_applied(),
            Applied::Unknown
        );
    }
}
