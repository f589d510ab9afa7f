//! `dueq serve`: the queues over HTTP.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, value_parser};
use dueq_serve::{Access, Config, NamePattern, PublicUrl, Role, Server, TlsFiles, TrustedProxy};

use crate::output::Usage;
use crate::signals::EndSignals;
use crate::{Common, output, service};

#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Serves /v1/queues and more; /openapi.json describes all calls, and docs/guide/http.md explains them.
Errors are application/problem+json, and say whether the call was applied.

Who has access:
  Without --tokens and --trust-proxy: everybody on this machine, as an operator. The server then
    listens on loopback only, and refuses to start elsewhere.
  --tokens FILE: callers with a token of the file, as Authorization: Bearer TOKEN. `dueq serve token`
    makes one. Each token has roles and patterns of queues. The file is read again when it changes:
    delete the table of a token, and its access ends within a second.
  --trust-proxy CIDR: the user whom a proxy at these addresses names in --user-header. --group-role
    gives roles to the groups of --groups-header. From other addresses the headers are ignored.

Roles: a viewer reads counts and messages without payloads. A producer also pushes, cancels and
reschedules. A consumer also reads payloads, claims and settles. An operator may do everything.

A request must name the host that it reaches: the address of the server, or the host of
--public-url. So no web page can reach the server by a name of its own. Pages of other sites change
nothing, and there is no CORS.

Each action of an operator, and each of a page, is a JSON line in --audit-log, or on standard error, before it is done,
and another line has its outcome. If the first line cannot be written, the action is refused.

Limits: a request head has 16 KiB and 10 s, a body may pause for 10 s, and all bodies and deliveries
in memory together have 256 MiB.

Traces: with OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, each push is a span
`send QUEUE`, a child of the request's traceparent, exported by OTLP (HTTP, protobuf).
OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG apply as usual. Spans that the
collector does not take are lost, with a warning a minute; the end waits for it for at most 2 s.

Stop: Ctrl-C, SIGTERM, SIGQUIT or a closed terminal. /readyz answers 503 from then on, and running
requests have 30 s. A second signal ends them.
Reload: SIGHUP reopens the audit log, reads tokens and certificates, and tests those for Redis by a
new connection. Changed tokens and certificates are used without it, too. A file that cannot be used
leaves the old one in force, and the log has the reason.

Examples:
  dueq serve
  dueq serve token ops --role operator --tokens tokens.toml
  dueq serve --listen 0.0.0.0:8377 --tokens tokens.toml --public-url https://queues.example.com
  dueq serve --listen 0.0.0.0:443 --tokens tokens.toml --tls-cert chain.pem --tls-key key.pem
             --public-url https://queues.example.com
  dueq serve --trust-proxy 10.0.0.7 --user-header x-forwarded-user --groups-header x-forwarded-groups
             --group-role sre=operator --group-role dev=viewer --listen 10.0.0.8:8377
  curl -H \"Authorization: Bearer $TOKEN\" https://queues.example.com/v1/queues/orders"
)]
pub(crate) struct Serve {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    options: Options,
}

#[derive(Subcommand)]
enum Command {
    /// Add a token to the tokens file, and print it
    Token(Token),
}

#[derive(Args)]
struct Options {
    /// The address; port 0 chooses a free one
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:8377",
        env = "DUEQ_SERVE_LISTEN",
        hide_env_values = true
    )]
    listen: SocketAddr,
    /// The URL that callers use, if it is not the address. Its path is the prefix of all paths
    #[arg(
        long,
        value_name = "URL",
        env = "DUEQ_SERVE_PUBLIC_URL",
        hide_env_values = true
    )]
    public_url: Option<PublicUrl>,
    /// The tokens that have access
    #[arg(
        long,
        value_name = "FILE",
        env = "DUEQ_SERVE_TOKENS",
        hide_env_values = true
    )]
    tokens: Option<PathBuf>,
    /// Answer reads only
    #[arg(long, env = "DUEQ_SERVE_READ_ONLY", hide_env_values = true, value_parser = clap::builder::FalseyValueParser::new())]
    read_only: bool,
    /// Serve these queues only; * matches any characters, ? one [default: all]
    #[arg(
        long,
        value_name = "NAME_OR_PATTERN,...",
        value_delimiter = ',',
        env = "DUEQ_SERVE_QUEUES",
        hide_env_values = true
    )]
    queues: Vec<NamePattern>,
    /// Believe the headers of the proxies at these addresses
    #[arg(
        long,
        value_name = "CIDR,...",
        value_delimiter = ',',
        requires = "user_header",
        env = "DUEQ_SERVE_TRUST_PROXY",
        hide_env_values = true
    )]
    trust_proxy: Vec<String>,
    /// The header in which the proxy names the user
    #[arg(
        long,
        value_name = "NAME",
        requires = "trust_proxy",
        env = "DUEQ_SERVE_USER_HEADER",
        hide_env_values = true
    )]
    user_header: Option<String>,
    /// The header in which the proxy lists the user's groups, with commas
    #[arg(
        long,
        value_name = "NAME",
        requires = "trust_proxy",
        env = "DUEQ_SERVE_GROUPS_HEADER",
        hide_env_values = true
    )]
    groups_header: Option<String>,
    /// The role of a group's users. May be repeated
    #[arg(long, value_name = "GROUP=ROLE", value_delimiter = ',', requires = "groups_header", value_parser = group_role, env = "DUEQ_SERVE_GROUP_ROLE", hide_env_values = true)]
    group_role: Vec<(String, Role)>,
    /// The file of the audit log [default: standard error]
    #[arg(
        long,
        value_name = "FILE",
        env = "DUEQ_SERVE_AUDIT_LOG",
        hide_env_values = true
    )]
    audit_log: Option<PathBuf>,
    /// The key that signs sessions and claims, 32 bytes in base64, instead of the tokens file's; all
    /// instances need the same
    #[arg(
        long,
        value_name = "FILE",
        env = "DUEQ_SERVE_SIGNING_KEY",
        hide_env_values = true
    )]
    signing_key: Option<PathBuf>,
    /// The certificate of the server and those of its issuers (PEM) [default: plain HTTP]
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_key",
        env = "DUEQ_SERVE_TLS_CERT",
        hide_env_values = true
    )]
    tls_cert: Option<PathBuf>,
    /// The key (PEM) of the server's certificate
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_cert",
        env = "DUEQ_SERVE_TLS_KEY",
        hide_env_values = true
    )]
    tls_key: Option<PathBuf>,
    /// How many requests each caller may send a second [default: no limit]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..), env = "DUEQ_SERVE_RATE_LIMIT", hide_env_values = true)]
    rate_limit: Option<u32>,
    /// How many connections there are at most. A new one takes the place of one without a request, or
    /// waits
    #[arg(long, value_name = "N", default_value_t = 1_024, value_parser = value_parser!(u32).range(1..=1_000_000), env = "DUEQ_SERVE_MAX_CONNECTIONS", hide_env_values = true)]
    max_connections: u32,
}

#[derive(Args)]
#[command(after_help = "\
Prints the token once: the file keeps only its SHA-256. Creates the file, readable by its owner only,
if there is none. Servers that use the file know the token within a second.

To end a token's access, delete its table from the file.

Examples:
  dueq serve token ci --role producer --queues 'orders*' --tokens tokens.toml
  dueq serve token shop --role producer --role consumer --queues orders,mails --tokens tokens.toml")]
pub(crate) struct Token {
    /// The name in the log and in the audit log
    name: String,
    /// What the token may do: viewer, producer, consumer or operator. May be repeated
    #[arg(long, required = true, value_delimiter = ',')]
    role: Vec<Role>,
    /// The queues that it may use; * matches any characters, ? one
    #[arg(
        long,
        value_name = "NAME_OR_PATTERN,...",
        value_delimiter = ',',
        default_value = "*"
    )]
    queues: Vec<NamePattern>,
    /// The tokens file
    #[arg(
        long,
        value_name = "FILE",
        env = "DUEQ_SERVE_TOKENS",
        hide_env_values = true
    )]
    tokens: PathBuf,
}

/// Reads GROUP=ROLE.
fn group_role(text: &str) -> Result<(String, Role), String> {
    let (group, role) = text
        .rsplit_once('=')
        .filter(|(group, _)| !group.trim().is_empty())
        .ok_or_else(|| format!("{text:?} has no role: write GROUP=ROLE, such as sre=operator"))?;
    Ok((group.trim().to_owned(), role.trim().parse()?))
}

impl Serve {
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<()> {
        match self.command {
            Some(Command::Token(token)) => token.run(common),
            None => self.options.run(common).await,
        }
    }
}

impl Token {
    fn run(self, common: &Common) -> anyhow::Result<()> {
        let token = dueq_serve::add_token(&self.tokens, &self.name, &self.role, &self.queues)
            .map_err(explained)?;
        if common.json {
            let object = serde_json::json!({ "name": self.name, "token": token });
            return Ok(output::json_line(&object)?);
        }
        Ok(output::line(&token)?)
    }
}

impl Options {
    async fn run(self, common: &Common) -> anyhow::Result<()> {
        // Catch signals from now on: a signal must not kill the program during a request.
        let mut signals = EndSignals::of_service()?;
        let config = self.config().map_err(Usage)?;
        let scheme = if config.tls.is_some() {
            "https"
        } else {
            "http"
        };
        // Report a wrong configuration before waiting for Redis.
        config.check().map_err(explained)?;
        let client = tokio::select! {
            client = common.client_when_up() => client?,
            () = signals.recv() => return Ok(()),
        };
        let server = Server::bind(client, config).await.map_err(explained)?;
        let url = format!("{scheme}://{}", server.address());
        let control = server.control();
        if common.json {
            output::json_line(&serde_json::json!({ "listening": url }))?;
        } else {
            output::line(&format!("listening on {url}; Ctrl-C stops"))?;
        }
        service::ready();
        let stop = tokio_util::sync::CancellationToken::new();
        let ending = async {
            let reload = || {
                control.reload();
                Ok(())
            };
            signals
                .recv_reloading(async || service::reload(common, reload).await)
                .await;
            service::stopping();
            stop.cancel();
            signals.recv().await;
        };
        tokio::select! {
            () = server.run(stop.cancelled()) => {}
            () = ending => {}
        }
        Ok(())
    }

    fn config(self) -> Result<Config, String> {
        let proxy = match self.user_header {
            Some(user_header) => Some(TrustedProxy::new(
                &self.trust_proxy,
                &user_header,
                self.groups_header.as_deref(),
                &self.group_role,
            )?),
            None => None,
        };
        let file = |given: Option<PathBuf>, option| given.or_else(|| service::credential(option));
        let tls = match (
            file(self.tls_cert, "tls-cert"),
            file(self.tls_key, "tls-key"),
        ) {
            (Some(certificate), Some(key)) => Some(TlsFiles { certificate, key }),
            (None, None) => None,
            (Some(_), None) => {
                return Err(
                    "--tls-cert needs --tls-key FILE, the key of the certificate".to_owned(),
                );
            }
            (None, Some(_)) => {
                return Err(
                    "--tls-key needs --tls-cert FILE, the certificate of the key".to_owned(),
                );
            }
        };
        Ok(Config {
            access: file(self.tokens, "tokens").map_or(Access::Loopback, Access::Tokens),
            proxy,
            public_url: self.public_url,
            is_read_only: self.read_only,
            queues: self.queues,
            audit_log: self.audit_log,
            signing_key: file(self.signing_key, "signing-key"),
            tls,
            rate_limit: self.rate_limit,
            listen: self.listen,
            max_connections: usize::try_from(self.max_connections).unwrap_or(usize::MAX),
            ..Config::default()
        })
    }
}

/// A wrong configuration is wrong usage: exit code 2.
fn explained(error: dueq_serve::Error) -> anyhow::Error {
    match error {
        dueq_serve::Error::Config(text) => Usage(text).into(),
        error => error.into(),
    }
}
