//! The program `dueq`: pushes to, works and looks at delay queues on Redis.

mod acl;
mod bench;
#[cfg(test)]
mod checks;
mod completions;
mod configure;
mod dev;
mod doctor;
mod durable;
mod existing;
mod failure;
mod functions;
mod group;
mod ids;
mod import;
mod inspect;
mod keys;
mod ndjson;
mod output;
mod push;
mod push_file;
mod queues;
mod reschedule;
mod shown;
mod snippets;
mod stats;
mod time;
mod when;
mod work;

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::OnceLock;

use anyhow::anyhow;
use clap::{Args, Parser, Subcommand, ValueEnum};
use dueq::{Client, ClientOptions, Error, Queue};
use failure::Told;
use output::{Outcome, Usage};

/// Delay queues on Redis: push a message with a time, and one live worker gets it at that time.
///
/// The server is named by --redis or REDIS_URL: redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE], or rediss:// for TLS,
/// or redis+sentinel://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]/SERVICE[/DATABASE].
/// Everybody on this machine can read its command lines: a URL with a password belongs into REDIS_URL.
#[derive(Parser)]
#[command(
    version,
    after_help = "\
Examples:
  dueq push orders 'rate order 42' --id order:42 --delay 48h
  dueq work orders --print
  dueq stats orders

Exit codes: 0 done, 1 refused or failed, 2 wrong usage."
)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

/// Where the help lists what every subcommand takes: after its own options.
const COMMON: &str = "Common options";

#[derive(Args)]
struct Common {
    /// The server
    #[arg(
        long,
        global = true,
        help_heading = COMMON,
        value_name = "URL",
        env = "REDIS_URL",
        hide_env_values = true,
        default_value = "redis://127.0.0.1/"
    )]
    redis: String,
    /// Certificates, in PEM, of those who may have signed the server's, instead of those that this machine trusts
    #[arg(long, global = true, help_heading = COMMON, value_name = "FILE", env = "DUEQ_CACERT", hide_env_values = true)]
    cacert: Option<PathBuf>,
    /// The certificate that the server asks for, in PEM
    #[arg(long, global = true, help_heading = COMMON, value_name = "FILE", env = "DUEQ_CERT", hide_env_values = true)]
    cert: Option<PathBuf>,
    /// The key of that certificate, in PEM
    #[arg(long, global = true, help_heading = COMMON, value_name = "FILE", env = "DUEQ_KEY", hide_env_values = true)]
    key: Option<PathBuf>,
    /// Print JSON, one object a line, for programs
    #[arg(long, global = true, help_heading = COMMON)]
    json: bool,
    /// How warnings and errors are written to standard error
    #[arg(long, global = true, help_heading = COMMON, value_enum, default_value_t = Log::Text, value_name = "FORMAT")]
    log: Log,
    /// The queue that the command is about: errors name it.
    #[arg(skip)]
    about: OnceLock<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Log {
    /// Lines for people
    Text,
    /// One JSON object a line
    Json,
}

#[derive(Subcommand)]
enum Command {
    /// Store a message, or a file of them, to be delivered when due
    Push(push::Push),
    /// Handle the messages of a queue as they become due, until Ctrl-C
    Work(work::Work),
    /// Take back messages that wait
    Cancel(ids::Cancel),
    /// Give a message that waits another due time
    Reschedule(reschedule::Reschedule),
    /// Make messages that wait due now
    RunNow(ids::RunNow),
    /// One message, whatever its state
    Show(inspect::Show),
    /// The messages of a queue in one state, in the order of their times
    Ls(inspect::Ls),
    /// What a queue, or each queue, holds and has done
    Stats(stats::Stats),
    /// The names of all queues on the server
    Queues(queues::Queues),
    /// Stop deliveries of a queue; pushes and running handlers go on
    Pause(queues::Pause),
    /// End a pause
    Resume(queues::Resume),
    /// Give dead messages another life, due now
    Requeue(ids::Requeue),
    /// Remove all messages of a queue that are in one state
    Purge(queues::Purge),
    /// Remove a queue with everything in it
    DeleteQueue(queues::DeleteQueue),
    /// Set limits of a queue
    Configure(configure::Configure),
    /// What is wrong with the server and its queues, and what mends it
    Doctor(doctor::Doctor),
    /// The rights that a producer, a consumer or an operator of a queue needs
    Acl(acl::Acl),
    /// The Redis Functions library, for clients in other languages
    Functions(functions::Functions),
    /// The ten keys of a queue, or a producer for it in another language
    Keys(keys::Keys),
    /// Take over what waits in another program's queue
    Import(import::Import),
    /// Measure throughput and lateness on the server, in 20 s
    Bench(bench::Bench),
    /// Run a private Redis or Valkey, for trying things out, until Ctrl-C
    Dev(dev::Dev),
    /// Print a completion script for a shell
    Completions(completions::Completions),
}

impl Common {
    async fn client(&self) -> anyhow::Result<Client> {
        Ok(Client::connect_with(&self.redis, &self.options()?).await?)
    }

    /// Which certificates to use.
    fn options(&self) -> anyhow::Result<ClientOptions> {
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

    async fn queue(&self, name: &str) -> anyhow::Result<Queue> {
        Ok(self.client_and_queue(name).await?.1)
    }

    async fn client_and_queue(&self, name: &str) -> anyhow::Result<(Client, Queue)> {
        let client = self.client().await?;
        let queue = client.queue(name)?;
        let _ = self.about.set(name.to_owned());
        Ok((client, queue))
    }

    /// The same of one that must exist.
    async fn existing_queue(&self, name: &str) -> anyhow::Result<Queue> {
        let (client, queue) = self.client_and_queue(name).await?;
        existing::require(&client, &queue).await?;
        Ok(queue)
    }

    /// An error of the library, with what it leaves open.
    fn told(&self, error: &Error) -> Told {
        Told::of(error, self.about.get().map(String::as_str))
    }

    /// Warnings go to standard error; RUST_LOG shows more, or less.
    fn start_log(&self) {
        let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "warn".into());
        let json = self.log == Log::Json;
        let writer = move || output::Log { json };
        let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_target(false);
        match self.log {
            Log::Text => log.init(),
            Log::Json => log.json().flatten_event(true).init(),
        }
    }

    /// What is worth a look, and no failure.
    fn remark(&self, text: &str) {
        match self.log {
            Log::Text => output::note(&format!("dueq: {}", output::visible(text.as_bytes()))),
            Log::Json => output::note(&output::json(&serde_json::json!({ "level": "WARN", "message": text }))),
        }
    }

    fn complain(&self, error: &anyhow::Error) {
        let of_library = error.downcast_ref::<Error>().map(|error| self.told(error));
        let told = of_library.as_ref().or_else(|| error.downcast_ref::<Told>());
        let text = told.map_or_else(|| error.to_string(), ToString::to_string);
        match self.log {
            Log::Text if error.is::<output::Advice>() => output::note(&format!("dueq: {error}")),
            Log::Text => output::note(&format!("dueq: {}", output::visible(text.as_bytes()))),
            Log::Json => {
                let mut object = serde_json::json!({ "level": "ERROR", "message": text });
                if let Some(told) = told {
                    object["applied"] = failure::applied(&told.error).into();
                }
                output::note(&output::json(&object));
            }
        }
    }
}

fn main() -> ExitCode {
    // Without a word of the user's: help, not an error, even if REDIS_URL is set.
    let args: Vec<OsString> = if std::env::args_os().len() == 1 {
        vec!["dueq".into(), "--help".into()]
    } else {
        std::env::args_os().collect()
    };
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(refusal) => return refuse(&refusal),
    };
    cli.common.start_log();
    match run(cli.command, &cli.common) {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Refused) => ExitCode::FAILURE,
        // Whoever reads our output has seen enough.
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            cli.common.complain(&error);
            if error.is::<output::Usage>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

/// Help, or what is wrong with the command line. It may have come from anywhere: what would steer a terminal is shown.
fn refuse(refusal: &clap::Error) -> ExitCode {
    let plain = refusal.render().to_string();
    if plain.contains(|c| c != '\n' && shown::steers(c)) {
        output::note(plain.trim_end());
    } else {
        // Nobody may read it; that is no failure.
        let _ = refusal.print();
    }
    if refusal.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS }
}

#[tokio::main]
async fn run(command: Command, common: &Common) -> anyhow::Result<Outcome> {
    match command {
        Command::Push(push) => push.run(common).await,
        Command::Work(work) => work.run(common).await.map(|()| Outcome::Done),
        Command::Cancel(cancel) => cancel.run(common).await,
        Command::Reschedule(reschedule) => reschedule.run(common).await,
        Command::RunNow(run_now) => run_now.run(common).await,
        Command::Show(show) => show.run(common).await,
        Command::Ls(ls) => ls.run(common).await,
        Command::Stats(stats) => stats.run(common).await,
        Command::Queues(queues) => queues.run(common).await,
        Command::Pause(pause) => pause.run(common).await,
        Command::Resume(resume) => resume.run(common).await,
        Command::Requeue(requeue) => requeue.run(common).await,
        Command::Purge(purge) => purge.run(common).await,
        Command::DeleteQueue(delete) => delete.run(common).await,
        Command::Configure(configure) => configure.run(common).await,
        Command::Doctor(doctor) => doctor.run(common).await,
        Command::Acl(acl) => acl.run(common),
        Command::Functions(functions) => functions.run(common).await,
        Command::Keys(keys) => keys.run(common),
        Command::Import(import) => import.run(common).await.map(|()| Outcome::Done),
        Command::Bench(bench) => bench.run(common).await,
        Command::Dev(dev) => dev.run(common).await.map(|()| Outcome::Done),
        Command::Completions(completions) => completions.run(),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
