//! `dueq completions`: completion scripts for shells.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::output::Outcome;
use crate::{Cli, output};

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
