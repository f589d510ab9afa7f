//! Generates and hashes access tokens. The tokens file has only hashes.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

/// The prefix of every token, by which secret scanners find a leaked one.
const PREFIX: &str = "dueq_";
/// The number of characters after the prefix: 32 bytes in base64url.
const CHARACTERS: usize = 43;

/// The SHA-256 of a token.
pub(crate) fn hash(token: &[u8]) -> [u8; 32] {
    Sha256::digest(token).into()
}

/// A new token.
pub(super) fn generate() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes)))
}

/// Whether the text holds something that looks like a token.
pub(crate) fn contains_token(text: &str) -> bool {
    text.match_indices(PREFIX).any(|(at, _)| {
        let rest = text[at + PREFIX.len()..].bytes();
        rest.take_while(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte))
            .count()
            >= CHARACTERS
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_tokens_differ_and_are_recognised() {
        let (one, other) = (
            generate().expect("random bytes"),
            generate().expect("random bytes"),
        );
        assert_ne!(one, other);
        assert!(contains_token(&format!("/v1/queues?x={one}")));
        assert!(!contains_token("/v1/queues/dueq_orders"));
    }
}
