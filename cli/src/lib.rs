//! The program `dueq` as a library, so that tests and fuzz targets can call its parts.
//!
//! `main.rs` only calls [`main`]. Nothing else here is a public API, and no release promises to
//! keep it.

#[cfg(any(test, feature = "harness"))]
pub mod checks;
mod commands;
mod existing;
mod failure;
mod flags;
mod group;
mod http_client;
mod log;
mod ndjson;
mod output;
mod picked;
mod server;
mod service;
mod shown;
mod signals;
mod source;
mod traces;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::OnceLock;

use clap::{Args, Parser, Subcommand};
use commands::{
    acl, bench, configure, dev, doctor, functions, healthcheck, history, ids, import, inspect,
    keys, ls, nodes, partitions, push, queues, reschedule, schedule, serve, stats, work, workers,
};
use dueq_input::time;
use output::Outcome;

/// Delay queues on Redis: push a message with a due time, and one live worker receives it at that
/// time.
///
/// --redis or the variable REDIS_URL names the server:
///   redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE], or rediss:// for TLS,
///   redis+sentinel://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]/SERVICE[/DATABASE]
///   redis+cluster://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]
/// Without both the server is redis://127.0.0.1/, where `dueq dev` runs one.
/// Put a URL with a password into REDIS_URL: other users of this machine can read command lines.
#[derive(Parser)]
#[command(
    name = "dueq",
    version,
    verbatim_doc_comment,
    after_help = "\
Examples:
  dueq push orders 'rate order 42' --id order:42 --delay 48h
  dueq work orders --print
  dueq stats orders

Exit codes: 0 done, 1 refused or failed, 2 wrong usage or a wrong value."
)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

/// The heading of the options that every command takes. The help lists them after the command's
/// own.
const COMMON: &str = "Common options";

#[derive(Args)]
struct Common {
    /// The Redis server [default: redis://127.0.0.1/]
    #[arg(long, global = true, help_heading = COMMON, value_name = "URL", env = "REDIS_URL", hide_env_values = true)]
    redis: Option<String>,
    /// The CA certificates (PEM) that the certificate of Redis is checked against, instead of this
    /// machine's
    #[arg(long, global = true, help_heading = COMMON, value_name = "FILE", env = "DUEQ_CACERT", hide_env_values = true)]
    cacert: Option<PathBuf>,
    /// The client certificate (PEM), if Redis asks for one
    #[arg(long, global = true, help_heading = COMMON, value_name = "FILE", env = "DUEQ_CERT", hide_env_values = true)]
    cert: Option<PathBuf>,
    /// The key (PEM) of the client certificate
    #[arg(long, global = true, help_heading = COMMON, value_name = "FILE", env = "DUEQ_KEY", hide_env_values = true)]
    key: Option<PathBuf>,
    /// The password of the URL's user. The file is read for each new connection
    #[arg(long, global = true, help_heading = COMMON, value_name = "FILE", conflicts_with = "redis_password_command", env = "DUEQ_REDIS_PASSWORD_FILE", hide_env_values = true)]
    redis_password_file: Option<PathBuf>,
    /// Prints the password. `sh -c` runs it for new connections
    #[arg(long, global = true, help_heading = COMMON, value_name = "CMD", env = "DUEQ_REDIS_PASSWORD_COMMAND", hide_env_values = true)]
    redis_password_command: Option<String>,
    /// Print JSON for programs, one object a line
    #[arg(long, global = true, help_heading = COMMON)]
    json: bool,
    /// The format of warnings and errors on standard error
    #[arg(long, global = true, help_heading = COMMON, value_enum, default_value_t = log::Style::Text, value_name = "FORMAT")]
    log: log::Style,
    /// The least level that is logged: off, error, warn, info, debug or trace; overrides RUST_LOG
    /// [default: warn]
    #[arg(long, global = true, help_heading = COMMON, value_enum, value_name = "LEVEL", hide_possible_values = true)]
    log_level: Option<log::Level>,
    /// The queue of the command, for error messages.
    #[arg(skip)]
    about: OnceLock<String>,
}

#[derive(Subcommand)]
enum Command {
    /// Store a message, or a file of messages, for delivery at a due time
    Push(push::Push),
    /// Handle the messages of a queue as they become due, until Ctrl-C
    Work(work::Work),
    /// Remove waiting messages, so that they are never delivered
    Cancel(ids::Cancel),
    /// Change the due time of a waiting message
    Reschedule(reschedule::Reschedule),
    /// Declare, show and change recurring schedules
    Schedule(schedule::ScheduleCommand),
    /// Make waiting messages due now
    RunNow(ids::RunNow),
    /// Show one message, in any state
    Show(inspect::Show),
    /// List the messages of a queue in one state, in the order of their times
    Ls(ls::Ls),
    /// Show the counts and limits of a queue, or of all queues
    Stats(stats::Stats),
    /// List the processes that work on the queues, and what they run
    Workers(workers::Workers),
    /// List the live nodes of a queue, and who leads
    Nodes(nodes::Nodes),
    /// Print what a queue has done in each minute, hour or day
    History(history::History),
    /// List the names of all queues on the server
    Queues(queues::Queues),
    /// Stop the deliveries of a queue; pushes and running handlers continue
    Pause(queues::Pause),
    /// End the pause of a queue
    Resume(queues::Resume),
    /// Make dead messages due now, with their attempts counted from zero
    Requeue(ids::Requeue),
    /// End the leases of messages whose worker is gone or hangs, so that they are delivered again
    EndLease(ids::EndLease),
    /// Take messages out of service: dead at once, or when the handler that has them ends
    Bury(ids::BuryIds),
    /// Remove all messages of a queue in one state
    Purge(queues::Purge),
    /// Remove a queue with all its messages
    DeleteQueue(queues::DeleteQueue),
    /// Show or set the limits of a queue
    Configure(configure::Configure),
    /// Show the partitions of a queue, or change their number while the queue is used
    Partitions(partitions::Partitions),
    /// Move a queue to another server or into a cluster while it is used
    Move(partitions::MoveQueue),
    /// Check the server and its queues, and name the remedy for each problem
    Doctor(doctor::Doctor),
    /// Print the Redis rights that a producer, a consumer or an operator of a queue needs
    Acl(acl::Acl),
    /// Load the Redis Functions library, for clients in other languages
    Functions(functions::Functions),
    /// Print the ten keys of a queue, or a producer for it in another language
    Keys(keys::Keys),
    /// Import the messages of another program's queue
    Import(import::Import),
    /// Measure throughput and lateness on your server in 20 s, and what it can hold
    Bench(bench::Bench),
    /// Serve the queues over HTTP, for every language and for operators
    Serve(serve::Serve),
    /// Ask a running server or worker for its health
    Healthcheck(healthcheck::Healthcheck),
    /// Run a private Redis or Valkey for experiments, until Ctrl-C
    Dev(dev::Dev),
    /// Print a completion script for a shell
    Completions(functions::Completions),
    /// Write the manual pages, for packages
    #[command(hide = true)]
    Manual(functions::Manual),
}

/// Runs the program with the arguments of this process.
pub fn main() -> ExitCode {
    // Without arguments: print the help, even if REDIS_URL is set.
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
    dueq::inspect::name_program(concat!("dueq ", env!("CARGO_PKG_VERSION")));
    match run(cli.command, &cli.common) {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Refused) => ExitCode::FAILURE,
        // The reader of the pipe has closed it: that is no error.
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            cli.common.complain(&error);
            if is_wrong_usage(&error) {
                ExitCode::from(2)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

/// Whether the command line is wrong: a wrong combination of options, or a value that the library
/// or the server refused as out of range.
fn is_wrong_usage(error: &anyhow::Error) -> bool {
    let of_library = error.downcast_ref::<dueq::Error>();
    let of_library = of_library.or_else(|| {
        error
            .downcast_ref::<failure::Explained>()
            .map(|explained| &explained.error)
    });
    error.is::<output::Usage>()
        || error.is::<dueq_input::Error>()
        || of_library.is_some_and(|error| error.kind() == dueq::ErrorKind::InvalidInput)
}

/// Prints the help, or the error of the command line, with terminal controls escaped.
fn refuse(refusal: &clap::Error) -> ExitCode {
    let plain = refusal.render().to_string();
    if plain.contains(|c| c != '\n' && shown::steers(c)) {
        output::note(plain.trim_end());
    } else {
        // Standard error may be closed.
        let _ = refusal.print();
    }
    // 0 for the help, 2 for wrong usage.
    u8::try_from(refusal.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
}

#[tokio::main]
async fn run(command: Command, common: &Common) -> anyhow::Result<Outcome> {
    match command {
        Command::Push(push) => push.run(common).await,
        Command::Work(work) => traces::during(work.run(common))
            .await
            .map(|()| Outcome::Done),
        Command::Cancel(cancel) => cancel.run(common).await,
        Command::Reschedule(reschedule) => reschedule.run(common).await,
        Command::Schedule(schedule) => schedule.run(common).await,
        Command::RunNow(run_now) => run_now.run(common).await,
        Command::Show(show) => show.run(common).await,
        Command::Ls(ls) => ls.run(common).await,
        Command::Stats(stats) => stats.run(common).await,
        Command::Workers(workers) => workers.run(common).await,
        Command::Nodes(nodes) => nodes.run(common).await,
        Command::History(history) => history.run(common).await,
        Command::Queues(queues) => queues.run(common).await,
        Command::Pause(pause) => pause.run(common).await,
        Command::Resume(resume) => resume.run(common).await,
        Command::Requeue(requeue) => requeue.run(common).await,
        Command::EndLease(end_lease) => end_lease.run(common).await,
        Command::Bury(bury) => bury.run(common).await,
        Command::Purge(purge) => purge.run(common).await,
        Command::DeleteQueue(delete) => delete.run(common).await,
        Command::Configure(configure) => configure.run(common).await,
        Command::Partitions(partitions) => partitions.run(common).await,
        Command::Move(moving) => moving.run(common).await,
        Command::Doctor(doctor) => doctor.run(common).await,
        Command::Acl(acl) => acl.run(common),
        Command::Functions(functions) => functions.run(common).await,
        Command::Keys(keys) => keys.run(common),
        Command::Import(import) => import.run(common).await.map(|()| Outcome::Done),
        Command::Bench(bench) => bench.run(common).await,
        Command::Serve(serve) => traces::during(serve.run(common))
            .await
            .map(|()| Outcome::Done),
        Command::Healthcheck(check) => check.run(common).await.map(|()| Outcome::Done),
        Command::Dev(dev) => dev.run(common).await.map(|()| Outcome::Done),
        Command::Completions(completions) => completions.run(),
        Command::Manual(manual) => manual.run(),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn command_line_definition_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
