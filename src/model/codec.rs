//! How the values of a queue become payloads, and back.

use std::error::Error as StdError;

/// An error of a codec, a handler or a layer.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// Encodes the values of a queue as payloads, and decodes payloads.
pub trait Codec: Clone + Send + Sync + 'static {
    /// What a payload stands for.
    type Value: Send + 'static;

    /// The payload of a value.
    fn encode(&self, value: &Self::Value) -> Result<Vec<u8>, BoxError>;

    /// The value of a payload.
    fn decode(&self, payload: &[u8]) -> Result<Self::Value, BoxError>;
}

/// Payloads as they are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bytes;

impl Codec for Bytes {
    type Value = Vec<u8>;

    fn encode(&self, value: &Vec<u8>) -> Result<Vec<u8>, BoxError> {
        Ok(value.clone())
    }

    fn decode(&self, payload: &[u8]) -> Result<Vec<u8>, BoxError> {
        Ok(payload.to_vec())
    }
}
