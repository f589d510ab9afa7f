//! `dueq keys`: the ten keys of a queue, and producers in other languages.

use clap::Args;

use crate::commands::snippets::{Lang, snippet};
use crate::output::Outcome;
use crate::{Common, output};

#[derive(Args)]
#[command(after_help = "\
Every script and function takes these ten keys in this order. They are quoted for a shell. --lang
prints a complete producer instead, ready to run. The command asks no server.

Examples (after `dueq functions load`):
  eval redis-cli FCALL dueq_push 10 $(dueq keys orders) \"'' '' order:42 +1500 hello ''\"
  dueq keys orders --lang redis-cli
  dueq keys orders --lang python > push.py && python push.py order:42 2000 'rate order 42'")]
pub(crate) struct Keys {
    /// The queue
    queue: String,
    /// Print a producer in this language instead
    #[arg(long)]
    lang: Option<Lang>,
}

impl Keys {
    pub(crate) fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        let keys = dueq::queue_keys(&self.queue)?;
        if let Some(lang) = self.lang {
            let redis_cli = common.remedy("redis-cli -u \"$REDIS_URL\"");
            output::text_as_it_is(&snippet(lang, &self.queue, &redis_cli))?;
        } else if common.json {
            output::json_line(&serde_json::json!({ "queue": self.queue, "keys": keys }))?;
        } else {
            let words: Vec<String> = keys
                .iter()
                .map(|key| dueq::shell_word(key.as_bytes()))
                .collect();
            output::line(&words.join(" "))?;
        }
        Ok(Outcome::Done)
    }
}
