//! Sessions of browsers. The cookie names a token of the tokens file, and is signed by a key
//! derived from the signing key and the token's hash. So a session ends when its token is removed
//! or the signing key changes. The server remembers only the sessions that a logout ended: see
//! [`EndedSessions`](super::session::EndedSessions).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use axum::http::header::COOKIE;
use axum::http::{HeaderMap, HeaderValue};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::edge::auth::{Hosts, Principal, TokensFile};

/// How long a session is valid.
pub(crate) const LASTS: Duration = Duration::from_secs(12 * 3_600);
const COOKIE_NAME: &str = "dueq_session";

/// The value of the session cookie: `EXPIRY.NAME.SIGNATURE`, the last two in base64url.
pub(crate) fn sealed(key: &[u8; 32], hash: &[u8; 32], name: &str, expires_s: u64) -> String {
    let name = URL_SAFE_NO_PAD.encode(name);
    let signature = mac(key, hash, expires_s, &name).finalize().into_bytes();
    format!("{expires_s}.{name}.{}", URL_SAFE_NO_PAD.encode(signature))
}

fn mac(key: &[u8; 32], hash: &[u8; 32], expires_s: u64, name: &str) -> Hmac<Sha256> {
    let keyed = |key: &[u8]| {
        Hmac::<Sha256>::new_from_slice(key).expect("an HMAC takes a key of any length")
    };
    let mut of_token = keyed(key);
    of_token.update(b"dueq session 1\0");
    of_token.update(hash);
    let mut mac = keyed(&of_token.finalize().into_bytes());
    mac.update(format!("{expires_s}.{name}").as_bytes());
    mac
}

/// Begins a session of the caller with this token, and returns the value of the cookie.
pub(crate) fn begin(
    key: &[u8; 32],
    file: &TokensFile,
    token: &str,
    now: SystemTime,
) -> Option<String> {
    let (hash, principal) = file.entry(token)?;
    let expires_s = unix_s(now).saturating_add(LASTS.as_secs());
    Some(sealed(key, hash, principal.name(), expires_s))
}

/// The signature and the expiry that identify a session.
pub(crate) struct Signed {
    pub(crate) signature: [u8; 32],
    pub(crate) expires_s: u64,
}

pub(crate) fn has_expired(expires_s: u64, now: SystemTime) -> bool {
    unix_s(now) >= expires_s
}

/// The caller of the request's session cookie, and the session.
pub(crate) fn principal(
    key: &[u8; 32],
    file: &TokensFile,
    headers: &HeaderMap,
    now: SystemTime,
) -> Option<(Principal, Signed)> {
    let mut parts = cookie(headers)?.split('.');
    let (expires, name, signature) = (parts.next()?, parts.next()?, parts.next()?);
    let expires_s: u64 = expires.parse().ok()?;
    if parts.next().is_some() || has_expired(expires_s, now) || expires_s.to_string() != expires {
        return None;
    }
    let named = String::from_utf8(URL_SAFE_NO_PAD.decode(name).ok()?).ok()?;
    let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
    let (hash, principal) = file.named(&named)?;
    let mac = mac(key, hash, expires_s, name);
    mac.verify_slice(&signature).ok()?;
    let signature = signature.try_into().ok()?;
    let signed = Signed {
        signature,
        expires_s,
    };
    Some((principal.in_session(), signed))
}

/// The only session cookie of the request. If there are two, none counts: one may belong to another
/// application on the same host.
fn cookie(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(COOKIE).iter();
    let mut values = cookies
        .filter_map(|header| header.to_str().ok())
        .flat_map(|header| header.split(';'))
        .filter_map(|pair| pair.trim().strip_prefix(COOKIE_NAME)?.strip_prefix('='));
    let value = values.next()?;
    values.next().is_none().then_some(value)
}

/// The `Set-Cookie` header that sets the session cookie; without a value it removes the cookie.
/// Scripts cannot read the cookie, and browsers send it only with requests of this server's own
/// pages.
pub(crate) fn set_cookie(value: Option<&str>, hosts: &Hosts) -> Option<HeaderValue> {
    let path = hosts.public().map_or("", |url| url.path());
    let secure = if hosts.is_https() { "; Secure" } else { "" };
    let (value, age_s) = value.map_or(("", 0), |value| (value, LASTS.as_secs()));
    let text = format!(
        "{COOKIE_NAME}={value}; Path={path}/; Max-Age={age_s}; HttpOnly; SameSite=Strict{secure}"
    );
    HeaderValue::try_from(text).ok()
}

fn unix_s(now: SystemTime) -> u64 {
    now.duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// The most ended sessions that are remembered. Beyond that, the one that expires first is
/// forgotten.
const MAX_REMEMBERED: usize = 10_000;

/// The signatures of ended sessions, each with its expiry.
#[derive(Default)]
pub(crate) struct EndedSessions(Mutex<HashMap<[u8; 32], u64>>);

impl EndedSessions {
    /// Ends a session, whose signature must be verified.
    pub(crate) fn add(&self, session: &Signed, now: SystemTime) {
        let mut ended = self.lock();
        if ended.len() >= MAX_REMEMBERED {
            ended.retain(|_, expires_s| !super::session::has_expired(*expires_s, now));
        }
        if ended.len() >= MAX_REMEMBERED {
            let first = ended.iter().min_by_key(|(_, expires_s)| **expires_s);
            if let Some(first) = first.map(|(signature, _)| *signature) {
                ended.remove(&first);
            }
        }
        ended.insert(session.signature, session.expires_s);
    }

    pub(crate) fn contains(&self, session: &Signed) -> bool {
        self.lock().contains_key(&session.signature)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; 32], u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::auth::{NamePattern, Role, add_token};

    fn file(path: &std::path::Path) -> TokensFile {
        TokensFile::read(path).expect("a tokens file")
    }

    fn name_in(key: &[u8; 32], file: &TokensFile, cookie: &str, now: SystemTime) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, cookie.parse().expect("a header"));
        principal(key, file, &headers, now).map(|(principal, _)| principal.name().to_owned())
    }

    #[test]
    fn session_ends_with_its_token_signing_key_or_expiry() {
        let path = std::env::temp_dir().join(format!("dueq-test-session-{}", std::process::id()));
        let all = [NamePattern::all()];
        let token = add_token(&path, "ann", &[Role::Viewer], &all).expect("a token");
        let (before, key, now) = (file(&path), [7; 32], SystemTime::now());
        let value = begin(&key, &before, &token, now).expect("a session");
        let cookie = format!("a=b; {COOKIE_NAME}={value}");
        assert_eq!(name_in(&key, &before, &cookie, now).as_deref(), Some("ann"));
        assert_eq!(name_in(&[8; 32], &before, &cookie, now), None);
        assert_eq!(name_in(&key, &before, &cookie, now + LASTS), None);
        assert_eq!(
            name_in(&key, &before, &format!("{cookie}; {COOKIE_NAME}=x"), now),
            None
        );
        for at in 0..value.len() {
            let mut forged = value.clone().into_bytes();
            forged[at] = if forged[at] == b'1' { b'2' } else { b'1' };
            let forged = format!(
                "{COOKIE_NAME}={}",
                String::from_utf8(forged).expect("ASCII")
            );
            assert_eq!(
                name_in(&key, &before, &forged, now),
                None,
                "{at} of {value}"
            );
        }
        // The file now has another token with the name of the first.
        std::fs::remove_file(&path).expect("the file");
        add_token(&path, "ann", &[Role::Operator], &all).expect("a token");
        assert_eq!(name_in(&key, &file(&path), &cookie, now), None);
        std::fs::remove_file(&path).expect("the file");
    }
}

#[cfg(test)]
mod ended_tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn number_of_ended_sessions_kept_is_bounded() {
        let (ended, now) = (EndedSessions::default(), SystemTime::UNIX_EPOCH);
        let session = |number: usize| {
            let mut signature = [0; 32];
            signature[..8].copy_from_slice(&number.to_be_bytes());
            Signed {
                signature,
                expires_s: 60 + number as u64,
            }
        };
        for number in 0..=MAX_REMEMBERED {
            ended.add(&session(number), now);
        }
        assert!(!ended.contains(&session(0)) && ended.contains(&session(1)));
        assert!(ended.contains(&session(MAX_REMEMBERED)));
        // Expired sessions make room.
        ended.add(&session(0), now + Duration::from_secs(100));
        assert_eq!(ended.lock().len(), MAX_REMEMBERED - 40 + 1);
    }
}
