//! Files for other programs: `dueq functions` prints or loads the Redis Functions library, which
//! other languages call by FCALL; `dueq completions` prints the completion scripts of shells; `dueq
//! manual` writes the manual pages.

use std::io;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, CommandFactory, Subcommand};
use clap_complete::Shell;
use dueq::admin::FunctionsStatus as Found;

use crate::output::Outcome;
use crate::{Cli, Common, output};

#[derive(Args)]
#[command(after_help = "\
The library has one function for each call of the protocol. Redis keeps it with its data: load it
once, and any client can push with
  FCALL dueq_push 10 KEYS... '' '' ID +DELAY_MS PAYLOAD ''
and the ten keys that `dueq keys QUEUE` prints. docs/protocol describes every function.

Examples:
  dueq functions load
  dueq functions status --json | jq -r .outcome
  dueq functions print > dueq.lua")]
pub(crate) struct Functions {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Load the library into the server; exit code 1, and no change, if the server has a newer one
    Load,
    /// Print the source of the library, for FUNCTION LOAD
    Print,
    /// Print whether the server has the library: absent, older, current or newer
    Status,
}

impl Functions {
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        match self.command {
            Command::Load => {
                let before = common.client().await?.load_functions().await?;
                let (word, outcome) = match before {
                    Found::Absent | Found::Older(_) => ("loaded", Outcome::Done),
                    Found::Current => ("current", Outcome::Done),
                    Found::Newer(_) => ("newer", Outcome::Refused),
                };
                print(common.json, word, before, "before")?;
                Ok(outcome)
            }
            Command::Print => {
                output::text_as_it_is(&dueq::admin::functions_code())?;
                Ok(Outcome::Done)
            }
            Command::Status => {
                let found = common.client().await?.functions().await?;
                let word = match found {
                    Found::Absent => "absent",
                    Found::Older(_) => "older",
                    Found::Current => "current",
                    Found::Newer(_) => "newer",
                };
                print(common.json, word, found, "server")?;
                Ok(Outcome::Done)
            }
        }
    }
}

/// Prints the outcome word, this program's version, and under `name` the version that the server
/// had before.
fn print(json: bool, word: &str, found: Found, name: &str) -> io::Result<()> {
    let ours = dueq::admin::functions_version();
    let theirs = match found {
        Found::Absent => None,
        Found::Current => Some(ours),
        Found::Older(version) | Found::Newer(version) => Some(version),
    };
    if json {
        let mut object = serde_json::json!({ "outcome": word, "version": ours });
        object[name] = theirs.into();
        return output::json_line(&object);
    }
    let server = match (name, theirs) {
        ("before", Some(version)) => format!("the server had version {version}"),
        ("before", None) => "the server had none".to_owned(),
        (_, Some(version)) => format!("the server has version {version}"),
        (_, None) => "the server has none; `dueq functions load` loads it".to_owned(),
    };
    output::line(&format!(
        "{word} (this program has version {ours}, {server})"
    ))
}

#[derive(Args)]
#[command(after_help = "\
Prints the script to standard output. Write it to the file that your shell reads; new shells then
complete the commands and options of dueq.

Examples:
  dueq completions bash > ~/.local/share/bash-completion/completions/dueq
  dueq completions zsh > ~/.zfunc/_dueq
  dueq completions fish > ~/.config/fish/completions/dueq.fish")]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "dueq", &mut script);
        output::text_as_it_is(&String::from_utf8_lossy(&script))?;
        Ok(Outcome::Done)
    }
}

/// Writes a page for each command, which `scripts/dist` packs.
#[derive(Args)]
pub(crate) struct Manual {
    /// The folder of the pages; it must exist
    folder: PathBuf,
}

impl Manual {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        clap_mangen::generate_to(Cli::command(), &self.folder)
            .with_context(|| format!("cannot write in {}", self.folder.display()))?;
        Ok(Outcome::Done)
    }
}
