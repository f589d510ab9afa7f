//! `dueq keys`: what any Redis client needs to be a producer.

use std::io::Write;

use clap::Args;

use crate::snippets::{Lang, snippet};

#[derive(Args)]
#[command(after_help = "\
Examples:
  dueq keys orders
  dueq keys orders --lang python > push.py && python push.py order:42 2000 'rate order 42'

The producers call the Functions library, which the server must have.")]
pub(crate) struct Keys {
    /// Name of the queue
    queue: String,
    /// Print a working producer in this language instead
    #[arg(long)]
    lang: Option<Lang>,
}

impl Keys {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let keys = dueq::queue_keys(&self.queue)?;
        let text = match self.lang {
            Some(lang) => snippet(lang, &self.queue),
            None => keys.map(|key| format!("{key}\n")).concat(),
        };
        Ok(std::io::stdout().write_all(text.as_bytes())?)
    }
}
