//! `dueq healthcheck`: asks a running `dueq serve` or `dueq work --metrics` for its health.

use std::time::Duration;

use anyhow::{anyhow, bail};
use clap::Args;
use reqwest::{Client, Url, redirect};

use crate::commands::work::http::install_provider;
use crate::output::Usage;
use crate::{Common, output};

/// The longest wait for the answer.
const LIMIT: Duration = Duration::from_secs(5);
/// How much of the answer a failure shows, in bytes.
const SHOWN: usize = 300;

#[derive(Args)]
#[command(after_help = "\
Exit code 0 if the answer is 200 within 5 s, else 1 with the reason. For images without a shell:
  HEALTHCHECK CMD [\"dueq\", \"healthcheck\"]

/healthz answers while the process runs. /readyz answers 200 only while it also reaches Redis and
does not stop. The certificate of an https:// URL is checked against this machine's CA certificates.

Examples:
  dueq healthcheck
  dueq healthcheck http://127.0.0.1:9464/readyz")]
pub(crate) struct Healthcheck {
    /// The URL to ask
    #[arg(default_value = "http://127.0.0.1:8377/healthz")]
    url: String,
}

impl Healthcheck {
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<()> {
        let url = Url::parse(&self.url)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https"))
            .ok_or_else(|| {
                Usage("healthcheck needs a URL, such as http://127.0.0.1:8377/readyz".to_owned())
            })?;
        let shown = output::visible(url.as_str().as_bytes());
        install_provider();
        let client = Client::builder()
            .no_proxy()
            .redirect(redirect::Policy::none())
            .timeout(LIMIT)
            .build()?;
        let asked = async {
            let response = client.get(url).send().await?;
            Ok::<_, reqwest::Error>((response.status(), response.bytes().await?))
        };
        let (status, body) = asked.await.map_err(|error| {
            let error = anyhow::Error::from(error.without_url());
            anyhow!("{shown} does not answer: {error:#}")
        })?;
        if status != reqwest::StatusCode::OK {
            let said = output::visible(&body[..body.len().min(SHOWN)]);
            bail!("{shown} answers {status}: {said}");
        }
        Ok(match common.json {
            true => output::json_line(&serde_json::json!({ "url": self.url, "healthy": true })),
            false => output::line(&format!("healthy: {shown}")),
        }?)
    }
}
