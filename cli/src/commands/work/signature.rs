//! Signatures by Standard Webhooks: `v1,` and the base64 of an HMAC-SHA256 over id, timestamp and
//! payload.

use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use anyhow::{anyhow, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::output::Usage;
use crate::service::credential;

const MAKE_ONE: &str = "make one: echo \"whsec_$(openssl rand -base64 32)\" > secret, and pass it by --secret-file or DUEQ_WEBHOOK_SECRET";
/// The least length of a key in the specification, in bytes.
const SHORTEST: usize = 24;

/// The signing secret, or several while secrets are being changed.
pub(super) struct Secrets {
    file: Option<PathBuf>,
    keys: RwLock<Vec<Hmac<Sha256>>>,
}

impl Secrets {
    /// Reads the secrets, one a line, from the file or else from the environment.
    pub(super) fn load(file: Option<&Path>, environment: Option<&str>) -> anyhow::Result<Self> {
        let file = file.map(Path::to_owned).or_else(|| match environment {
            Some(_) => None,
            None => credential("webhook-secret"),
        });
        let keys = match (&file, environment) {
            (Some(file), _) => read(file)?,
            (None, Some(text)) => parse(text)?,
            (None, None) => bail!(usage(format!(
                "--http signs its requests and needs a secret; {MAKE_ONE}"
            ))),
        };
        Ok(Self {
            file,
            keys: RwLock::new(keys),
        })
    }

    /// Reads the file again, if there is one. If that fails, the old secrets stay in use.
    pub(super) fn reload(&self) -> anyhow::Result<()> {
        if let Some(file) = &self.file {
            let keys = read(file)?;
            *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys;
        }
        Ok(())
    }

    /// The value of the header `webhook-signature`: one signature for each secret.
    pub(super) fn sign(&self, id: &str, seconds: u64, payload: &[u8]) -> String {
        let sign = |key: &Hmac<Sha256>| {
            let mac = key
                .clone()
                .chain_update(format!("{id}.{seconds}."))
                .chain_update(payload);
            format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
        };
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.iter().map(sign).collect::<Vec<_>>().join(" ")
    }
}

fn usage(reason: String) -> anyhow::Error {
    Usage(reason).into()
}

fn read(file: &Path) -> anyhow::Result<Vec<Hmac<Sha256>>> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| anyhow!("cannot read the secret from {}: {error}", file.display()))?;
    parse(&text)
}

fn parse(text: &str) -> anyhow::Result<Vec<Hmac<Sha256>>> {
    let lines = text.lines().map(str::trim);
    let keys: Vec<_> = lines
        .filter(|line| !line.is_empty())
        .map(key)
        .collect::<Result<_, _>>()?;
    if keys.is_empty() {
        bail!(usage(format!("the webhook secret is empty; {MAKE_ONE}")));
    }
    Ok(keys)
}

/// Reads a secret. Its errors never quote the secret.
fn key(line: &str) -> anyhow::Result<Hmac<Sha256>> {
    let bytes = STANDARD
        .decode(line.strip_prefix("whsec_").unwrap_or(line))
        .map_err(|_| {
            usage(format!(
                "a webhook secret is whsec_ and base64, or base64 alone; {MAKE_ONE}"
            ))
        })?;
    if bytes.len() < SHORTEST {
        bail!(usage(format!(
            "a webhook secret has at least {SHORTEST} bytes, this one {}; {MAKE_ONE}",
            bytes.len()
        )));
    }
    Hmac::new_from_slice(&bytes).map_err(|error| anyhow!("the webhook secret: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example in the tests of the specification's own libraries.
    const SECRET: &str = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    fn sign(text: &str) -> String {
        let secrets = Secrets::load(None, Some(text)).expect("secrets");
        secrets.sign(
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            br#"{"test": 2432232314}"#,
        )
    }

    #[test]
    fn signature_matches_the_specifications_example() {
        assert_eq!(sign(SECRET), SIGNATURE);
        assert_eq!(sign(&format!("whsec_{SECRET}\n")), SIGNATURE);
    }

    #[test]
    fn two_secrets_make_two_signatures() {
        let other = format!("whsec_{}", STANDARD.encode([7; 32]));
        let both = sign(&format!("{SECRET}\n\n{other}\n"));
        assert_eq!(both, format!("{SIGNATURE} {}", sign(&other)));
    }

    #[test]
    fn malformed_secrets_are_refused_and_not_quoted() {
        for text in [
            "",
            " \n",
            "whsec_",
            "whsec_!!!",
            "c2hvcnQ=",
            "whsec_c2hvcnQ=",
        ] {
            let said = Secrets::load(None, Some(text))
                .err()
                .expect("refused")
                .to_string();
            assert!(said.contains("openssl"), "{text:?}: {said}");
            assert!(!said.contains("c2hvcnQ"), "{said}");
        }
        assert!(Secrets::load(None, None).is_err());
    }
}
