//! Parses the tokens file.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use crate::edge::auth::tokens::token::hash;
use crate::edge::auth::{NamePattern, Principal, Role, Via};
use crate::edge::shown::shown;

/// The parsed tokens file: the tokens and the signing key.
#[derive(Default)]
pub(crate) struct TokensFile {
    tokens: Vec<([u8; 32], Principal)>,
    signing_key: Option<[u8; 32]>,
}

/// The tokens file as TOML.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Toml {
    signing_key: Option<String>,
    #[serde(default)]
    token: Vec<TokenEntry>,
}

/// One token of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenEntry {
    name: String,
    roles: Vec<Role>,
    #[serde(default = "all_queues")]
    queues: Vec<NamePattern>,
    sha256: String,
}

fn all_queues() -> Vec<NamePattern> {
    vec![NamePattern::all()]
}

impl TokensFile {
    /// Reads the file. The error names the fault, and quotes nothing of the file except names.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        Self::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Reads the file again while this version is in force. A file that was cut may be well formed.
    pub(crate) fn read_after(before: &Self, path: &Path) -> Result<Self, String> {
        let file = Self::read(path)?;
        let lacks = |what: &str| Err(format!("{}: it has no {what}", path.display()));
        if file.tokens.is_empty() && !before.tokens.is_empty() {
            return lacks("token");
        }
        if file.signing_key.is_none() && before.signing_key.is_some() {
            return lacks("signing key, and had one");
        }
        Ok(file)
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        // The parser's error quotes the line, which may contain the key: only the line number is
        // kept.
        let toml: Toml = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let line = text.get(..at).unwrap_or(text).matches('\n').count() + 1;
            format!("line {line}: {}", shown(error.message()))
        })?;
        let signing_key = toml.signing_key.as_deref().map(signing_key).transpose()?;
        let (mut tokens, mut names) = (Vec::new(), HashSet::new());
        for entry in toml.token {
            let name = entry.name;
            if name.is_empty() || name.len() > 128 || name.contains(char::is_control) {
                return Err(format!(
                    "token {name:?}: a name has 1 to 128 bytes without control characters"
                ));
            }
            if !names.insert(name.clone()) {
                return Err(format!("two tokens have the name {name:?}"));
            }
            if entry.roles.is_empty() || entry.queues.is_empty() {
                return Err(format!(
                    "token {name:?} needs a role and a pattern of queues"
                ));
            }
            let hash = hex(&entry.sha256)
                .ok_or_else(|| format!("token {name:?}: sha256 must have 64 hexadecimal digits"))?;
            let principal = Principal::new(name, Via::Token, entry.roles, entry.queues);
            tokens.push((hash, principal));
        }
        Ok(Self {
            tokens,
            signing_key,
        })
    }

    /// The caller with this token, if the file has it.
    pub(crate) fn principal(&self, token: &str) -> Option<Principal> {
        self.entry(token).map(|(_, principal)| principal.clone())
    }

    /// The hash and the caller of this token. The time does not depend on which entry matches.
    pub(crate) fn entry(&self, token: &str) -> Option<&([u8; 32], Principal)> {
        let hash = hash(token.as_bytes());
        let mut found = u32::MAX;
        for (number, (known, _)) in (0_u32..).zip(&self.tokens) {
            let fits: Choice = known.ct_eq(&hash);
            found.conditional_assign(&number, fits);
        }
        self.tokens.get(usize::try_from(found).ok()?)
    }

    /// The hash and the caller of the token with this name.
    pub(crate) fn named(&self, name: &str) -> Option<&([u8; 32], Principal)> {
        self.tokens
            .iter()
            .find(|(_, principal)| principal.name() == name)
    }

    pub(crate) fn signing_key(&self) -> Option<[u8; 32]> {
        self.signing_key
    }
}

/// Reads the 32 bytes of a signing key from base64.
pub(crate) fn signing_key(text: &str) -> Result<[u8; 32], String> {
    let bytes = STANDARD.decode(text.trim()).unwrap_or_default();
    <[u8; 32]>::try_from(bytes).map_err(|_| {
        "the signing key must be 32 bytes in base64: openssl rand -base64 32".to_owned()
    })
}

/// Decodes 64 hexadecimal digits.
fn hex(text: &str) -> Option<[u8; 32]> {
    let digits: Vec<u8> = text
        .chars()
        .map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect::<Option<_>>()?;
    let bytes: Vec<u8> = digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair.get(1).unwrap_or(&0))
        .collect();
    (digits.len() == 64)
        .then(|| bytes.try_into().ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::auth::Right;

    fn entry(name: &str, more: &str, token: &str) -> String {
        let hash: String = hash(token.as_bytes())
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        format!("[[token]]\nname = {name:?}\nroles = [\"viewer\"]\n{more}\nsha256 = \"{hash}\"\n")
    }

    #[test]
    fn only_a_complete_token_is_accepted() {
        let text = entry("one", "queues = [\"a*\"]", "dueq_1") + &entry("two", "", "dueq_2");
        let file = TokensFile::parse(&text).expect("a tokens file");
        let name = |token| {
            file.principal(token)
                .map(|principal| principal.name().to_owned())
        };
        assert_eq!(name("dueq_1").as_deref(), Some("one"));
        assert_eq!(name("dueq_2").as_deref(), Some("two"));
        for wrong in [
            "", "dueq_", "dueq_3", "dueq_1 ", " dueq_1", "DUEQ_1", "dueq_1\0",
        ] {
            assert_eq!(name(wrong), None, "{wrong:?}");
        }
        let one = file.principal("dueq_1").expect("known");
        assert!(one.has(Right::Read) && !one.has(Right::Operate));
        assert!(one.may_use("abc") && !one.may_use("bc"));
    }

    #[test]
    fn wrong_file_is_refused_without_quoting_secrets() {
        for (text, reason) in [
            (entry("a", "", "x") + &entry("a", "", "y"), "two tokens"),
            (entry("a", "", "x").replace("viewer", "admin"), "admin"),
            (
                entry("a", "", "x").replace("sha256 = \"", "sha256 = \"zz"),
                "64 hexadecimal",
            ),
            (
                entry("a", "", "x").replace("[\"viewer\"]", "[]"),
                "needs a role",
            ),
            (entry("a", "passwort = \"SECRET\"", "x"), "line"),
            ("signing_key = \"SECRET\"".to_owned(), "32 bytes"),
            ("signing_key = \"SECRET".to_owned(), "line 1"),
        ] {
            let error = TokensFile::parse(&text).err().expect("refused");
            assert!(error.contains(reason), "{error}");
            assert!(!error.contains("SECRET"), "{error}");
        }
    }
}
