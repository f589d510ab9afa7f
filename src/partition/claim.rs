//! The calls that claim messages, and read a grant again.

use crate::error::Error;
use crate::model::lease_token::LeaseToken;
use crate::partition::Partition;
use crate::protocol::results::claim::Claim;
use crate::protocol::verbs::Verb;
use crate::server::patience::Repeat;
use crate::telemetry::metrics::Count;

impl Partition {
    /// Claims ready messages first, then due ones that are not promoted yet. With `count` 0 it only
    /// returns a wake-up token.
    pub(crate) async fn claim(&self, count: usize, lease_ms: u64) -> Result<Claim, Error> {
        // A new token for each call: no repetition of one is HELD.
        self.claim_with(LeaseToken::random(), count, lease_ms).await
    }

    /// The same with the caller's token. Fails with the code `HELD` if a lease has it.
    pub(crate) async fn claim_with(
        &self,
        LeaseToken(token): LeaseToken,
        count: usize,
        lease_ms: u64,
    ) -> Result<Claim, Error> {
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

    /// What the lease with this token holds.
    pub(crate) async fn held_once(&self, LeaseToken(token): LeaseToken) -> Result<Claim, Error> {
        let reply = self.call_once(Verb::Held, &[&token]).await?;
        Ok(Claim::decode_held(reply, token)?.0)
    }

    /// What the lease with this token holds, and how many messages more than the reply has.
    pub(crate) async fn held(&self, LeaseToken(token): LeaseToken) -> Result<(Claim, u64), Error> {
        let reply = self.call(Verb::Held, &[&token], Repeat::Harmless).await?;
        Claim::decode_held(reply, token)
    }
}
