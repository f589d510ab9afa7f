//! Connects to the command's server, gets its password from a command if asked, and explains its
//! errors.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use dueq::admin::shell_word;
use dueq::{Client, ClientOptions, Error, ErrorKind, Queue};
use tokio::process::Command;
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::failure::Explained;
use crate::log::Style;
use crate::output::Usage;
use crate::service::credential;
use crate::{Common, existing, failure, log, output};

/// The server's URL without --redis and REDIS_URL.
const DEFAULT: &str = "redis://127.0.0.1/";
/// How the library's texts name the server in redis-cli commands.
const NAMED: &str = " -u \"$REDIS_URL\"";

/// The pause between two attempts to connect at the start.
const START_AGAIN: Duration = Duration::from_secs(1);

impl Common {
    pub(crate) fn url(&self) -> &str {
        self.redis.as_deref().unwrap_or(DEFAULT)
    }

    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        Ok(Client::connect_with(self.url(), &self.options()?).await?)
    }

    /// Connects. If the server is unreachable, waits for it, as a running worker does.
    pub(crate) async fn client_when_up(&self) -> anyhow::Result<Client> {
        loop {
            match self.client().await {
                Err(error) if error.downcast_ref::<Error>().is_some_and(is_away) => {
                    let error = self.message_of(&error);
                    tracing::warn!(name: log::NOT_STARTED, target: "dueq", error, "not started yet; trying again");
                    tokio::time::sleep(START_AGAIN).await;
                }
                result => return result,
            }
        }
    }

    /// Connects for a command that only reads: a server that is unfit to hold queues is accepted
    /// with a warning.
    pub(crate) async fn client_to_read(&self) -> anyhow::Result<Client> {
        match Client::connect_with(self.url(), &self.options()?).await {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                let client =
                    Client::connect_with(self.url(), &self.options()?.accept_unfit()).await?;
                self.remark(&format!("warning: {error}"));
                Ok(client)
            }
            result => Ok(result?),
        }
    }

    /// The certificates and the password of the command line.
    pub(crate) fn options(&self) -> anyhow::Result<ClientOptions> {
        let mut options = ClientOptions::new();
        let file = |given: &Option<PathBuf>, option| given.clone().or_else(|| credential(option));
        if let Some(path) = file(&self.cacert, "cacert") {
            options = options.ca_certificates_file(path);
        }
        match (file(&self.cert, "cert"), file(&self.key, "key")) {
            (Some(cert), Some(key)) => options = options.client_certificate_files(cert, key),
            (None, None) => {}
            (Some(_), None) => {
                return Err(Usage(
                    "--cert needs --key FILE, the key of the certificate".to_owned(),
                )
                .into());
            }
            (None, Some(_)) => {
                return Err(Usage(
                    "--key needs --cert FILE, the certificate of the key".to_owned(),
                )
                .into());
            }
        }
        if let Some(command) = &self.redis_password_command {
            options = options.password_from(by_command(command));
        } else if let Some(path) = file(&self.redis_password_file, "redis-password") {
            options = options.password_file(path);
        }
        Ok(options)
    }

    pub(crate) async fn queue(&self, name: &str) -> anyhow::Result<Queue> {
        Ok(self.client_and_queue(name).await?.1)
    }

    pub(crate) async fn client_and_queue(&self, name: &str) -> anyhow::Result<(Client, Queue)> {
        // Check the name first, so that a wrong one is reported even if the server is unreachable.
        dueq::admin::queue_keys(name)?;
        let client = self.client().await?;
        let queue = self.queue_of(&client, name)?;
        Ok((client, queue))
    }

    pub(crate) async fn client_and_queue_to_read(
        &self,
        name: &str,
    ) -> anyhow::Result<(Client, Queue)> {
        dueq::admin::queue_keys(name)?;
        let client = self.client_to_read().await?;
        let queue = self.queue_of(&client, name)?;
        Ok((client, queue))
    }

    /// Opens the queue of the command, and remembers its name for error messages.
    pub(crate) fn queue_of(&self, client: &Client, name: &str) -> anyhow::Result<Queue> {
        let queue = client.queue(name)?;
        let _ = self.about.set(name.to_owned());
        Ok(queue)
    }

    /// Opens a queue that must exist.
    pub(crate) async fn existing_queue(&self, name: &str) -> anyhow::Result<Queue> {
        let (client, queue) = self.client_and_queue(name).await?;
        existing::require(&client, &queue).await?;
        Ok(queue)
    }

    pub(crate) async fn existing_queue_to_read(&self, name: &str) -> anyhow::Result<Queue> {
        let (client, queue) = self.client_and_queue_to_read(name).await?;
        existing::require(&client, &queue).await?;
        Ok(queue)
    }

    /// Explains an error of the library.
    pub(crate) fn explain(&self, error: &Error) -> Explained {
        Explained::of(error, self.about.get().map(String::as_str))
    }

    /// Inserts the server of this call into the commands of a text: redis-cli does not read
    /// REDIS_URL.
    pub(crate) fn remedy(&self, text: &str) -> String {
        let Some(url) = &self.redis else {
            return text.replace(NAMED, "");
        };
        if std::env::var("REDIS_URL").is_ok_and(|variable| variable == *url)
            && is_for_redis_cli(url)
        {
            return text.to_owned();
        }
        let server = match url.rsplit_once('@') {
            None if is_for_redis_cli(url) => shell_word(url.as_bytes()),
            // The URL may contain a password, so it is not repeated.
            _ => "URL".to_owned(),
        };
        text.replace(NAMED, &format!(" -u {server}"))
    }

    /// Advice on a failed connection about flags and the URL, which the library does not know.
    fn way_out(&self, error: &Error) -> Option<&'static str> {
        if !error.is_connection_error() {
            return None;
        }
        Some(if self.redis.is_none() {
            "neither --redis nor REDIS_URL is set, so this is the default; `dueq dev` runs a server there"
        } else if self.url().starts_with("rediss") {
            "if this port has no TLS, use redis://; --cacert FILE names the CA that signed the server's certificate"
        } else {
            "check the port: another program does not speak Redis's protocol, a port with TLS needs rediss://, \
             and a server at its maxclients closes connections"
        })
    }

    pub(crate) fn message_of(&self, error: &anyhow::Error) -> String {
        let of_library = error
            .downcast_ref::<Error>()
            .map(|error| self.explain(error));
        let explained = of_library
            .as_ref()
            .or_else(|| error.downcast_ref::<Explained>());
        let text = self.remedy(&explained.map_or_else(|| error.to_string(), ToString::to_string));
        match explained.and_then(|explained| self.way_out(&explained.error)) {
            Some(way_out) => format!("{text} ({way_out})"),
            None => text,
        }
    }

    /// Notes something that is no failure.
    pub(crate) fn remark(&self, text: &str) {
        match self.log {
            Style::Text => output::note(&format!("dueq: {}", output::visible(text.as_bytes()))),
            Style::Json => output::note(&output::json(
                &serde_json::json!({ "level": "WARN", "message": text }),
            )),
        }
    }

    pub(crate) fn complain(&self, error: &anyhow::Error) {
        let text = self.message_of(error);
        match self.log {
            Style::Text if error.is::<output::Advice>() => output::note(&format!("dueq: {error}")),
            Style::Text => output::note(&format!("dueq: {}", output::visible(text.as_bytes()))),
            Style::Json => {
                let mut object = serde_json::json!({ "level": "ERROR", "message": text });
                let explained = error
                    .downcast_ref::<Explained>()
                    .map(|explained| &explained.error);
                if let Some(error) = error.downcast_ref::<Error>().or(explained) {
                    object["applied"] = failure::applied(error).into();
                }
                output::note(&output::json(&object));
            }
        }
    }
}

fn is_away(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout)
}

/// Whether redis-cli accepts the URL: it does not know URLs of Sentinels and of sockets.
fn is_for_redis_cli(url: &str) -> bool {
    url.starts_with("redis://") || url.starts_with("rediss://")
}

/// The longest time that the password command may run.
const LIMIT: Duration = Duration::from_secs(10);
/// How long a printed password, or a failure of the command, is used for further connections: a
/// process opens several at once.
const LASTS: Duration = Duration::from_secs(1);

/// A source of passwords that runs this command. It must be created on a tokio runtime.
pub(crate) fn by_command(
    command: &str,
) -> impl Fn() -> Result<String, String> + Send + Sync + use<> {
    let (command, runtime) = (command.to_owned(), Handle::current());
    let last = Mutex::new(None::<(Instant, Result<String, String>)>);
    move || {
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, result)) = &*last
            && at.elapsed() < LASTS
        {
            return result.clone();
        }
        let result = runtime.block_on(run(&command));
        *last = Some((Instant::now(), result.clone()));
        result
    }
}

/// Runs the command. Errors quote neither the command, which may contain a secret, nor its output.
async fn run(command: &str) -> Result<String, String> {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", command])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .kill_on_drop(true);
    let output = match timeout(LIMIT, shell.output()).await {
        Ok(output) => {
            output.map_err(|error| format!("cannot run the password command: {error}"))?
        }
        Err(_) => return Err(format!("the password command ran longer than {LIMIT:?}")),
    };
    if !output.status.success() {
        return Err(format!("the password command failed: {}", output.status));
    }
    let text = String::from_utf8(output.stdout)
        .map_err(|_| "the password command printed other text than UTF-8".to_owned())?;
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err("the password command printed nothing".to_owned()),
        password => Ok(password.to_owned()),
    }
}
