//! The handle of a delivery: the text by which any process settles it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::Delivery;
use crate::batch::OfClaim;
use crate::error::Error;
use crate::protocol::limits::{MAX_ID_BYTES, check_id};
use crate::protocol::partition_map::Tag;

/// The first letter of every handle. A future form of handles begins with another letter.
const FORM: &str = "a";
/// How many bytes a lease token has.
const TOKEN_BYTES: usize = 16;
/// The most digits of the number in a partition's tag.
const TAG_DIGITS: usize = 9;

/// The right to settle one delivery, as text that any process can use: see
/// [`Delivery::handle`] and [`Queue::delivery`](crate::Queue::delivery).
///
/// Its text has 1 to [`MAX_BYTES`](DeliveryHandle::MAX_BYTES) bytes: lower-case letters, digits,
/// `.` and `-`, so it needs no quoting in a URL, a header or JSON. Do not parse it: the form may
/// change with the version of the library. Each version reads the handles of earlier versions.
///
/// The text contains the id of the message and the token of its lease, but not the name of the
/// queue. A program that has the handle can settle the delivery, as long as the lease lasts. The
/// handle is not signed: a program that knows the token can make it. A service that gives handles
/// to programs it does not trust adds a signature of its own. Cheap to clone.
///
/// ```
/// # dueq_testkit::doctest!(|orders, delivery| {
/// use dueq::claims::DeliveryHandle;
/// use dueq::outcomes::SettleOutcome;
///
/// let text = delivery.into_handle().to_string();
/// // In another process:
/// let handle: DeliveryHandle = text.parse()?;
/// assert_eq!(orders.delivery(handle).ack().await?, SettleOutcome::Done);
/// # });
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct DeliveryHandle(Arc<Parts>);

#[derive(PartialEq, Eq, Hash)]
struct Parts {
    id: Vec<u8>,
    token: [u8; TOKEN_BYTES],
    /// The tag of the partition that granted the delivery.
    tag: Tag,
}

impl DeliveryHandle {
    /// The most bytes of a handle's text.
    pub const MAX_BYTES: usize =
        FORM.len() + TAG_DIGITS + 1 + 2 * TOKEN_BYTES + 1 + 2 * MAX_ID_BYTES;

    fn new(id: Vec<u8>, token: [u8; TOKEN_BYTES], tag: Tag) -> Self {
        Self(Arc::new(Parts { id, token, tag }))
    }

    /// The id of the message, as it was pushed.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|delivery| {
    /// assert_eq!(delivery.handle().id_bytes(), b"order:42");
    /// # });
    /// ```
    pub fn id_bytes(&self) -> &[u8] {
        &self.0.id
    }

    pub(crate) fn tag(&self) -> Tag {
        self.0.tag
    }

    /// The claim of this handle, as an item of a settlement needs it.
    pub(crate) fn granted(&self) -> Arc<dyn OfClaim> {
        Arc::clone(&self.0) as _
    }

    fn read(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix(FORM)?.split('.');
        let (Some(tag), Some(token), Some(id), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return None;
        };
        let tag = Tag::parse(tag).filter(|tag| !tag.is_far())?;
        let token = bytes_of(token)?.try_into().ok()?;
        let id = bytes_of(id)?;
        check_id(&id).is_ok().then(|| Self::new(id, token, tag))
    }
}

impl OfClaim for Parts {
    fn id(&self) -> &[u8] {
        &self.id
    }

    fn token(&self) -> &[u8] {
        &self.token
    }
}

impl fmt::Display for DeliveryHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parts { id, token, tag } = &*self.0;
        write!(f, "{FORM}{tag}.")?;
        for byte in token {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(".")?;
        id.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Debug output omits the token: logs must not give the right to settle.
impl fmt::Debug for DeliveryHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeliveryHandle")
            .field("id", &String::from_utf8_lossy(&self.0.id))
            .finish_non_exhaustive()
    }
}

impl FromStr for DeliveryHandle {
    type Err = Error;

    /// Reads the text of a handle.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if the text is not a handle of
    /// any version. The error does not repeat the text, which may contain a token.
    fn from_str(text: &str) -> Result<Self, Error> {
        let handle = (text.len() <= Self::MAX_BYTES)
            .then(|| Self::read(text))
            .flatten();
        handle.ok_or_else(|| {
            Error::invalid(format!(
                "a text of {} bytes is no handle of a delivery: pass on what `Delivery::handle` \
                 returned, at most {} bytes, unchanged",
                text.len(),
                Self::MAX_BYTES
            ))
        })
    }
}

/// Decodes hexadecimal digits into bytes. It refuses upper-case digits, so that each handle has one
/// text.
fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let byte = |[high, low]: &[u8; 2]| Some(value(*high)? << 4 | value(*low)?);
    pairs
        .iter()
        .map(byte)
        .collect::<Option<_>>()
        .filter(|_| rest.is_empty())
}

impl Delivery {
    /// The handle by which any process settles this delivery: a text with the message's id and
    /// lease token, for a consumer in another process or language. The delivery itself stays
    /// usable. If both are settled, the first settlement acts.
    ///
    /// Makes no call. After the lease is lost, settlements by the handle are refused like those of
    /// the delivery.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders, delivery| {
    /// use dueq::outcomes::SettleOutcome;
    ///
    /// assert_eq!(orders.delivery(delivery.handle()).ack().await?, SettleOutcome::Done);
    /// assert_eq!(delivery.ack().await?, SettleOutcome::Gone);
    /// # });
    /// ```
    pub fn handle(&self) -> DeliveryHandle {
        DeliveryHandle::new(self.0.id.clone(), self.0.token, self.0.partition.tag())
    }

    /// Detaches the delivery from this process, and returns the [handle](Delivery::handle) by which
    /// another program settles it.
    ///
    /// When the handler returns, the worker does not settle a detached delivery, and no longer
    /// extends its lease. The lease keeps its present end. The program that has the handle can
    /// extend it.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::Delivery;
    ///
    /// // Another process acks what this handler gives away.
    /// let (sender, mut given) = tokio::sync::mpsc::unbounded_channel();
    /// let give = move |delivery: Delivery| {
    ///     let _ = sender.send(delivery.into_handle());
    ///     async {}
    /// };
    /// orders.push("rate it").await?;
    /// let worker = orders.worker().spawn(give)?;
    /// let handle = given.recv().await.ok_or("the worker has ended")?;
    /// worker.shutdown().await?;
    /// assert_eq!(orders.stats().await?.leased, 1);
    /// # let _ = orders.delivery(handle).ack().await?;
    /// # });
    /// ```
    pub fn into_handle(self) -> DeliveryHandle {
        // For this process the delivery counts as settled.
        self.close(false);
        self.handle()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_has_one_text_that_reads_back() {
        let longest = vec![0xff; MAX_ID_BYTES];
        for (id, tag) in [
            (vec![b'0'], Tag::Home),
            (b"order:42".to_vec(), Tag::Numbered(0)),
            (longest.clone(), Tag::Numbered(999_999_999)),
        ] {
            let handle = DeliveryHandle::new(id.clone(), [0xa7; TOKEN_BYTES], tag);
            let text = handle.to_string();
            let read: DeliveryHandle = text.parse().expect("its own text");
            assert_eq!(read, handle);
            assert_eq!((read.id_bytes(), read.tag()), (&id[..], tag));
            assert_eq!(text.len() == DeliveryHandle::MAX_BYTES, id == longest);
            assert!(text.to_uppercase().parse::<DeliveryHandle>().is_err());
        }
    }

    #[test]
    fn texts_that_no_handle_has_are_refused() {
        let good = DeliveryHandle::new(b"a1".to_vec(), [7; TOKEN_BYTES], Tag::Home).to_string();
        for at in 0..=good.len() {
            for other in ["", "é", ".", "-", "g", " ", "\0", "00"] {
                let replaced =
                    format!("{}{other}{}", &good[..at], good.get(at + 1..).unwrap_or(""));
                let inserted = format!("{}{other}{}", &good[..at], &good[at..]);
                for text in [replaced, inserted] {
                    if let Ok(read) = text.parse::<DeliveryHandle>() {
                        assert_eq!(read.to_string(), text, "another handle");
                    }
                }
            }
        }
        let long = format!("{good}{}", "0".repeat(1 << 20));
        for text in [
            "",
            "a",
            "a-..",
            "a-",
            &good[1..],
            &good[..36],
            &long,
            "a-\u{7f}.0.0",
        ] {
            let error = text.parse::<DeliveryHandle>().expect_err("malformed");
            assert!(
                !error.to_string().contains(&"07".repeat(TOKEN_BYTES)),
                "{error}"
            );
        }
    }

    #[test]
    fn debug_output_hides_the_token() {
        let handle = Delivery::unconnected(1).handle();
        assert!(!format!("{handle:?}").contains("0707"));
    }

    #[test]
    fn a_detached_delivery_counts_as_settled_in_its_process() {
        let delivery = Delivery::unconnected(1);
        let kept = delivery.clone();
        let _handle = delivery.into_handle();
        assert!(kept.is_settled() && !kept.is_lost());
    }
}
