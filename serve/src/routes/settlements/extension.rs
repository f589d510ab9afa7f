//! The extension of one lease, as it is written.

use std::time::Duration;

use dueq::DeliveryHandle;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::problem::{Code, Problem};
use crate::routes::settlements::settlement::{handle_of, parse};

const DAY_MS: u64 = 86_400_000;

/// Which lease, and for how long.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Extension {
    /// The handle of the delivery.
    #[schema(max_length = 443)]
    handle: String,
    /// How long from now the lease lasts: up to a day.
    #[schema(minimum = 1, maximum = 86_400_000)]
    lease_ms: u64,
}

/// An extension whose values are in their ranges.
pub(super) struct Extended {
    pub(super) handle: DeliveryHandle,
    pub(super) lease: Duration,
}

impl Extension {
    pub(super) fn read(text: &str) -> Result<Extended, Problem> {
        let Self { handle, lease_ms } = parse(text)?;
        if !(1..=DAY_MS).contains(&lease_ms) {
            let detail =
                format!("lease_ms: {lease_ms} is out of range; a lease has 1 to {DAY_MS} ms");
            return Err(Problem::new(Code::InvalidInput, detail));
        }
        Ok(Extended {
            handle: handle_of(&handle)?,
            lease: Duration::from_millis(lease_ms),
        })
    }
}
