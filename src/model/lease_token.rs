//! The fencing token of a claim.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use crate::error::Error;

/// The token of one claim: 16 bytes. Whoever has it can settle and extend what the claim granted,
/// so keep it as secret as the messages. [`Queue::claim`](crate::Queue::claim) draws a random
/// token. With [`Queue::claim_with_token`](crate::Queue::claim_with_token) the caller chooses it,
/// and can repeat the claim or read the grant again.
///
/// Each claim needs a token of its own. As text it is 32 hexadecimal digits.
///
/// ```
/// use dueq::claims::LeaseToken;
///
/// let token = LeaseToken::random();
/// assert_eq!(token.to_string().parse::<LeaseToken>()?, token);
/// # Ok::<(), dueq::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseToken(pub(crate) [u8; 16]);

impl LeaseToken {
    /// A new token, of 122 random bits.
    ///
    /// ```
    /// use dueq::claims::LeaseToken;
    ///
    /// assert_ne!(LeaseToken::random(), LeaseToken::random());
    /// ```
    pub fn random() -> Self {
        Self(*Uuid::new_v4().as_bytes())
    }

    /// A new token with 64 random bits that contains the end of this node id. With no such id the
    /// token is random.
    pub(crate) fn of_node(id: Option<&str>) -> Self {
        let Some(end) = id.and_then(end_of_node) else {
            return Self::random();
        };
        let (mut bytes, random) = ([b'@'; 16], Uuid::new_v4());
        let (_, rest) = bytes.split_at_mut(1);
        let (node, rest) = rest.split_at_mut(end.len());
        node.copy_from_slice(&end);
        // Only these bytes are fully random; others contain the version and variant bits of a UUID.
        let (first, last) = rest.split_at_mut(6);
        first.copy_from_slice(&random.as_bytes()[..6]);
        last.copy_from_slice(&random.as_bytes()[14..]);
        Self(bytes)
    }

    /// The token with these bytes, which must be as good as random: two claims with one token share
    /// the right to settle.
    ///
    /// ```
    /// use dueq::claims::LeaseToken;
    ///
    /// let token = LeaseToken::random();
    /// assert_eq!(LeaseToken::from_bytes(*token.as_bytes()), token);
    /// ```
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The 16 bytes.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// The last 7 letters and digits of a node's id, before any revision. Tokens and leases name the
/// node by them. `None` if another client chose an id of another form.
pub(crate) fn end_of_node(id: &str) -> Option<[u8; 7]> {
    let unique = id.rsplit_once('#').map_or(id, |(unique, _)| unique);
    let end = *unique.as_bytes().last_chunk()?;
    end.iter().all(u8::is_ascii_alphanumeric).then_some(end)
}

impl FromStr for LeaseToken {
    type Err = Error;

    /// Reads 32 hexadecimal digits.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) for any other text. The error does
    /// not repeat it.
    fn from_str(text: &str) -> Result<Self, Error> {
        let digits = text.as_bytes();
        let refused = || {
            let length = digits.len();
            Error::invalid(format!(
                "a lease token has 32 hexadecimal digits, not these {length} bytes"
            ))
        };
        if digits.len() != 32 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(refused());
        }
        let number = u128::from_str_radix(text, 16).map_err(|_| refused())?;
        Ok(Self(number.to_be_bytes()))
    }
}

impl fmt::Display for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// Debug output omits the token, so that logs do not contain it.
impl fmt::Debug for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeaseToken(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn a_token_is_read_from_32_hexadecimal_digits() {
        let token = LeaseToken::from_bytes(*b"\0token, 16 bytes");
        let text = "00746f6b656e2c203136206279746573";
        assert_eq!(token.to_string(), text);
        assert!(!format!("{token:?}").contains("746f"));
        for text in [text.to_owned(), text.to_uppercase()] {
            assert_eq!(text.parse::<LeaseToken>().expect("a token"), token);
        }
    }

    #[test]
    fn end_of_a_node_id_is_taken_before_its_revision() {
        for (id, end) in [
            ("0123456789#2", Some(b"3456789")),
            ("0123456789", Some(b"3456789")),
            ("1234567#2", Some(b"1234567")),
            ("123456#2", None),
            ("node-12-345", None),
            ("", None),
        ] {
            assert_eq!(end_of_node(id).as_ref(), end, "{id}");
        }
    }

    #[test]
    fn a_token_of_a_node_begins_with_the_end_of_its_id() {
        let [one, two] = [(); 2].map(|()| LeaseToken::of_node(Some("0abcD123#2")));
        assert!(one.0.starts_with(b"@abcD123") && two.0.starts_with(b"@abcD123"));
        assert_ne!(one.0[8..], two.0[8..]);
    }

    #[test]
    fn texts_that_are_no_token_are_refused_and_not_quoted() {
        let plus = format!("+{}", "a".repeat(31));
        let accents = "é".repeat(16);
        for text in ["", "ab", &"a".repeat(31), &"a".repeat(33), &plus, &accents] {
            let error = text.parse::<LeaseToken>().expect_err(text);
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(!error.to_string().contains(&"a".repeat(31)), "{error}");
        }
    }
}
