//! The call that claims messages.

use uuid::Uuid;

use crate::error::Error;
use crate::partition::Partition;
use crate::protocol::results::claim::Claim;
use crate::protocol::verbs::Verb;
use crate::telemetry::metrics::Count;

impl Partition {
    /// Claims ready messages first, then due ones that are not promoted yet. With `count` 0 it only
    /// returns a wake-up token.
    pub(crate) async fn claim(&self, count: usize, lease_ms: u64) -> Result<Claim, Error> {
        let token = *Uuid::new_v4().as_bytes();
        let (count_text, lease_text) = (count.to_string(), lease_ms.to_string());
        let claim: [&[u8]; 4] = [b"", count_text.as_bytes(), &token, lease_text.as_bytes()];
        let answer = self.claims.call(Verb::Claim, &self.keys, &claim).await;
        let claim = Claim::decode(
            answer.inspect_err(|error| self.meters().call_failed(error))?,
            token,
        )?;
        self.meters()
            .add_many(Count::Claimed, claim.granted.len() as u64);
        Ok(claim)
    }
}
