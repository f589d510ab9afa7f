//! `dueq healthcheck`: asks a running `dueq serve` or `dueq work --metrics` for its health.

use std::time::Duration;

use anyhow::{anyhow, bail};
use clap::Args;
use reqwest::Url;

use crate::output::Usage;
use crate::{Common, http_client, output};

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
        let shown = without_password(url.clone());
        let client = http_client::builder(url.scheme() == "https")
            .no_proxy()
            .timeout(LIMIT)
            .build()
            .map_err(|error| {
                let error = anyhow::Error::from(error);
                anyhow!("cannot ask {shown}: {error:#}")
            })?;
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
            true => output::json_line(&serde_json::json!({ "url": shown, "healthy": true })),
            false => output::line(&format!("healthy: {shown}")),
        }?)
    }
}

/// The URL as a line may show it, without the user and the password.
fn without_password(mut url: Url) -> String {
    // An http:// or https:// URL has a host, and so neither call fails.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    output::visible(url.as_str().as_bytes())
}
