//! The program `dueq`: pushes to, works and looks at delay queues on Redis.

mod dev;
mod group;
mod import;
mod keys;
mod output;
mod push;
mod snippets;
mod stats;
mod time;
mod work;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use dueq::{Client, Queue};

/// Delay queues on Redis: push a message with a time, and one live worker gets it at that time.
///
/// The server is named by --redis or REDIS_URL: redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE], or rediss:// for TLS.
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

#[derive(Args)]
struct Common {
    /// The server
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "REDIS_URL",
        hide_env_values = true,
        default_value = "redis://127.0.0.1/"
    )]
    redis: String,
    /// Print JSON, one object a line, for programs
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Store a message, to be delivered when it is due
    Push(push::Push),
    /// Handle the messages of a queue as they become due, until Ctrl-C
    Work(work::Work),
    /// What a queue holds and has done
    Stats(stats::Stats),
    /// Take over what waits in another program's queue
    Import(import::Import),
    /// Run a private Redis or Valkey, for trying things out, until Ctrl-C
    Dev(dev::Dev),
    /// The ten keys of a queue, or a producer for it in another language
    Keys(keys::Keys),
}

impl Common {
    async fn queue(&self, name: &str) -> anyhow::Result<Queue> {
        Ok(Client::connect(&self.redis).await?.queue(name)?)
    }
}

fn main() -> ExitCode {
    // Without a word of the user's: help, not an error, even if REDIS_URL is set.
    let cli = if std::env::args_os().len() == 1 { Cli::parse_from(["dueq", "--help"]) } else { Cli::parse() };
    // Warnings go to stderr; RUST_LOG shows more, or less.
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false).init();
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads our output has seen enough.
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dueq: {error}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        Command::Push(push) => push.run(&cli.common).await,
        Command::Work(work) => work.run(&cli.common).await,
        Command::Stats(stats) => stats.run(&cli.common).await,
        Command::Import(import) => import.run(&cli.common).await,
        Command::Dev(dev) => dev.run(&cli.common).await,
        Command::Keys(keys) => keys.run(),
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
