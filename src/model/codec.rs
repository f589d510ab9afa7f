//! Codecs: how the values of a queue become payload bytes, and back.

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;

/// An error of any type, as codecs return it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Turns the values of a queue into payload bytes, and payload bytes into values.
///
/// [`RawBytes`] and [`Json`] are codecs.
/// [`Client::queue_with_codec`](crate::Client::queue_with_codec) takes your own codec. An error or
/// panic of `encode` fails that push with [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput), and nothing is stored.
///
/// ```
/// use dueq::Codec;
/// use dueq::handlers::BoxError;
///
/// /// Numbers as decimal text.
/// #[derive(Clone)]
/// struct Decimal;
///
/// impl Codec for Decimal {
///     type Value = u64;
///
///     fn encode(&self, value: &u64) -> Result<Vec<u8>, BoxError> {
///         Ok(value.to_string().into_bytes())
///     }
///
///     fn decode(&self, payload: &[u8]) -> Result<u64, BoxError> {
///         Ok(std::str::from_utf8(payload)?.parse()?)
///     }
/// }
///
/// assert_eq!(Decimal.decode(&Decimal.encode(&42)?)?, 42);
/// # Ok::<(), BoxError>(())
/// ```
pub trait Codec: Clone + Send + Sync + 'static {
    /// What producers push and handlers receive.
    type Value: Send + 'static;

    /// Encodes a value into payload bytes.
    fn encode(&self, value: &Self::Value) -> Result<Vec<u8>, BoxError>;

    /// Decodes payload bytes into a value.
    fn decode(&self, payload: &[u8]) -> Result<Self::Value, BoxError>;

    /// Encodes a value that is not needed any more. A push calls this method. Override it if the
    /// value's own memory can become the payload.
    ///
    /// ```
    /// use dueq::{Codec, RawBytes};
    ///
    /// assert_eq!(RawBytes.encode_owned(b"raw".to_vec())?, b"raw");
    /// # Ok::<(), dueq::handlers::BoxError>(())
    /// ```
    fn encode_owned(&self, value: Self::Value) -> Result<Vec<u8>, BoxError> {
        self.encode(&value)
    }
}

/// The codec of [`Client::queue`](crate::Client::queue): the value is the payload.
///
/// ```
/// use dueq::{Codec, RawBytes};
///
/// assert_eq!(RawBytes.decode(b"raw")?, b"raw");
/// # Ok::<(), dueq::handlers::BoxError>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct RawBytes;

impl Codec for RawBytes {
    type Value = Vec<u8>;

    fn encode(&self, value: &Vec<u8>) -> Result<Vec<u8>, BoxError> {
        Ok(value.clone())
    }

    fn decode(&self, payload: &[u8]) -> Result<Vec<u8>, BoxError> {
        Ok(payload.to_vec())
    }

    fn encode_owned(&self, value: Vec<u8>) -> Result<Vec<u8>, BoxError> {
        Ok(value)
    }
}

/// The codec of [`Client::queue_of`](crate::Client::queue_of): values of `T` as JSON.
///
/// ```
/// use dueq::{Codec, Json};
///
/// let codec = Json::<Vec<u32>>::default();
/// assert_eq!(codec.encode(&vec![1, 2])?, b"[1,2]");
/// assert_eq!(codec.decode(b"[1,2]")?, [1, 2]);
/// assert!(codec.decode(b"{").is_err());
/// # Ok::<(), dueq::handlers::BoxError>(())
/// ```
pub struct Json<T>(PhantomData<fn() -> T>);

impl<T> Default for Json<T> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

// Written by hand, because a derived impl would require `T: Clone`.
impl<T> Clone for Json<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Json<T> {}

impl<T> std::fmt::Debug for Json<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Json")
    }
}

impl<T: Serialize + DeserializeOwned + Send + 'static> Codec for Json<T> {
    type Value = T;

    fn encode(&self, value: &T) -> Result<Vec<u8>, BoxError> {
        Ok(serde_json::to_vec(value)?)
    }

    fn decode(&self, payload: &[u8]) -> Result<T, BoxError> {
        Ok(serde_json::from_slice(payload)?)
    }
}

/// Encodes a value. An error or panic of the codec becomes an error of kind `InvalidInput`.
pub(crate) fn encode<C: Codec>(codec: &C, value: C::Value) -> Result<Vec<u8>, Error> {
    // Unwind safe: codecs are shared by reference, and a codec that leaves its own state half
    // changed affects only its own later results.
    let encode = || codec.encode_owned(value);
    let encode = || encode().map_err(|error| error.to_string());
    let reason = match catch_unwind(AssertUnwindSafe(encode)) {
        Ok(Ok(payload)) => return Ok(payload),
        Ok(Err(reason)) => reason,
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().copied();
            let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            format!("it panicked: {}", text.unwrap_or("no text"))
        }
    };
    Err(Error::invalid(format!(
        "the codec cannot encode the value: {}",
        crate::error::printable(&reason)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Applied, ErrorKind};

    #[derive(Clone)]
    struct Panics;

    impl Codec for Panics {
        type Value = Vec<u8>;

        fn encode(&self, _: &Vec<u8>) -> Result<Vec<u8>, BoxError> {
            panic!("no encoding")
        }

        fn decode(&self, _: &[u8]) -> Result<Vec<u8>, BoxError> {
            Ok(Vec::new())
        }
    }

    #[test]
    fn panic_of_a_codec_becomes_an_error() {
        let error = encode(&Panics, Vec::new()).expect_err("a panic");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert_eq!(error.was_applied(), Applied::No);
        assert!(error.to_string().contains("no encoding"), "{error}");
    }
}
