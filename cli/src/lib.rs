//! The program `dueq` as a library, so that tests and fuzz targets can call its parts.
//!
//! `main.rs` only calls [`main`]. Nothing else here is a public API, and no release promises to keep it.

#[cfg(any(test, feature = "harness"))]
pub mod checks;
mod commands;
mod durable;
mod existing;
mod failure;
mod group;
mod log;
mod ndjson;
mod output;
mod server;
mod shown;
mod time;
mod when;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::OnceLock;

use clap::{Args, Parser, Subcommand};
use commands::{
    acl, bench, completions, configure, dev, doctor, functions, ids, import, inspect, keys, push,
    queues, reschedule, stats, work,
};
use output::Outcome;

/// Delay queues on Redis: push a message with a time, and one live worker gets it at that time.
///
/// The server is named by --redis or REDIS_URL: redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE], or rediss:// for TLS,
/// or redis+sentinel://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]/SERVICE[/DATABASE].
/// Without both it is redis://127.0.0.1/; `dueq dev` runs a server there.
/// Put a URL with a password into REDIS_URL: other users of this machine can read its command lines.
#[derive(Parser)]
#[command(
    name = "dueq",
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
    /// The server [default: redis://127.0.0.1/]
    #[arg(long, global = true, help_heading = COMMON, value_name = "URL", env = "REDIS_URL", hide_env_values = true)]
    redis: Option<String>,
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
    #[arg(long, global = true, help_heading = COMMON, value_enum, default_value_t = log::Style::Text, value_name = "FORMAT")]
    log: log::Style,
    /// How much of the log is written: off, error, warn, info, debug or trace; overrides RUST_LOG [default: warn]
    #[arg(long, global = true, help_heading = COMMON, value_enum, value_name = "LEVEL", hide_possible_values = true)]
    log_level: Option<log::Level>,
    /// The queue that the command is about: errors name it.
    #[arg(skip)]
    about: OnceLock<String>,
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
    /// Show or set the limits of a queue
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

/// Runs the program with the arguments of this process.
pub fn main() -> ExitCode {
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
    log::start(cli.common.log, cli.common.log_level);
    match run(cli.command, &cli.common) {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Refused) => ExitCode::FAILURE,
        // Whoever reads our output has seen enough.
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            cli.common.complain(&error);
            if error.is::<output::Usage>() {
                ExitCode::from(2)
            } else {
                ExitCode::FAILURE
            }
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
    if refusal.use_stderr() {
        ExitCode::from(2)
    } else {
        ExitCode::SUCCESS
    }
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
