//! Which server is meant, how to connect to it, and what to do about errors of it.

use std::fs;
use std::path::PathBuf;

use anyhow::anyhow;
use dueq::{Client, ClientOptions, Error, ErrorKind, Queue, shell_word};

use crate::output::Usage;
use crate::{Common, output};

/// The server if none is named.
const DEFAULT: &str = "redis://127.0.0.1/";
/// How the library's remedies name the server.
const NAMED: &str = " -u \"$REDIS_URL\"";

impl Common {
    pub(crate) fn url(&self) -> &str {
        self.redis.as_deref().unwrap_or(DEFAULT)
    }

    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        Ok(Client::connect_with(self.url(), &self.options()?).await?)
    }

    /// For verbs that only read: they also look at a server that must not hold queues, and warn.
    pub(crate) async fn client_to_read(&self) -> anyhow::Result<Client> {
        match Client::connect_with(self.url(), &self.options()?).await {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                let client = Client::connect_with(self.url(), &self.options()?.accept_unfit()).await?;
                self.complain(&anyhow!("warning: {error}"));
                Ok(client)
            }
            result => Ok(result?),
        }
    }

    /// Which certificates to use.
    pub(crate) fn options(&self) -> anyhow::Result<ClientOptions> {
        let read = |path: &PathBuf| fs::read(path).map_err(|error| anyhow!("cannot read {}: {error}", path.display()));
        let mut options = ClientOptions::new();
        if let Some(path) = &self.cacert {
            options = options.ca_certificates(read(path)?);
        }
        match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => options = options.client_certificate(read(cert)?, read(key)?),
            (None, None) => {}
            _ => return Err(Usage("--cert and --key go together".to_owned()).into()),
        }
        Ok(options)
    }

    pub(crate) async fn queue(&self, name: &str) -> anyhow::Result<Queue> {
        Ok(self.client().await?.queue(name)?)
    }

    pub(crate) async fn queue_to_read(&self, name: &str) -> anyhow::Result<Queue> {
        Ok(self.client_to_read().await?.queue(name)?)
    }

    /// Commands to paste, with redis-cli at the server of this call: it does not read REDIS_URL by itself.
    pub(crate) fn remedy(&self, text: &str) -> String {
        let Some(url) = &self.redis else { return text.replace(NAMED, "") };
        if std::env::var("REDIS_URL").is_ok_and(|variable| variable == *url) && is_for_redis_cli(url) {
            return text.to_owned();
        }
        let server = match url.rsplit_once('@') {
            None if is_for_redis_cli(url) => shell_word(url.as_bytes()),
            // A password is not repeated.
            _ => "URL".to_owned(),
        };
        text.replace(NAMED, &format!(" -u {server}"))
    }

    /// What to look at, or to do, after an error that the library cannot explain by itself.
    fn way_out(&self, error: &Error) -> Option<&'static str> {
        let (text, tls) = (error.to_string(), self.url().starts_with("rediss"));
        let says = |words: &str| text.contains(words);
        let is_unreached = says("cannot reach redis") || says("the connection to redis");
        match error.kind() {
            ErrorKind::Unavailable | ErrorKind::Timeout | ErrorKind::Server if says("UnknownIssuer") => {
                Some("--cacert FILE names the CA that signed its certificate")
            }
            ErrorKind::Unavailable | ErrorKind::Server if says("Parse error") || says("invalid response") => {
                Some("it does not speak Redis's protocol: is this the port of another program?")
            }
            ErrorKind::Timeout | ErrorKind::Unavailable if tls && is_unreached => {
                Some("if this port has no TLS, use redis://")
            }
            ErrorKind::Unavailable if self.redis.is_none() && is_unreached => {
                Some("neither --redis nor REDIS_URL is set, so this is the default; `dueq dev` runs a server there")
            }
            ErrorKind::Unavailable if says("onnection reset") || says("roken pipe") || says("end of file") => {
                Some("the server may have reached its maxclients, or this port needs rediss://")
            }
            _ => None,
        }
    }

    pub(crate) fn explained(&self, error: &anyhow::Error) -> String {
        let text = self.remedy(&error.to_string());
        match error.downcast_ref::<Error>().and_then(|error| self.way_out(error)) {
            Some(way_out) => format!("{text} ({way_out})"),
            None => text,
        }
    }

    pub(crate) fn complain(&self, error: &anyhow::Error) {
        let text = self.explained(error);
        match self.log {
            crate::log::Style::Text if error.is::<output::Advice>() => output::note(&format!("dueq: {error}")),
            crate::log::Style::Text => output::note(&format!("dueq: {}", output::visible(text.as_bytes()))),
            crate::log::Style::Json => {
                output::note(&output::json(&serde_json::json!({ "level": "ERROR", "message": text })));
            }
        }
    }
}

/// Whether redis-cli understands it: it knows no Sentinels and no sockets in URLs.
fn is_for_redis_cli(url: &str) -> bool {
    url.starts_with("redis://") || url.starts_with("rediss://")
}
