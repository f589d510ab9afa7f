//! `dueq keys`: the ten keys that every script and function of a queue takes.

use clap::Args;

use crate::output::Outcome;
use crate::{Common, output};

#[derive(Args)]
#[command(after_help = "\
The keys are quoted for a shell, in the order that every script and function takes. No server is asked.

Example (after `dueq functions load`):
  eval redis-cli FCALL dueq_push 10 $(dueq keys orders) \"'' '' order:42 +1500 hello ''\"")]
pub(crate) struct Keys {
    /// The queue
    queue: String,
}

impl Keys {
    pub(crate) fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        let keys = dueq::functions_keys(&self.queue)?;
        if common.json {
            output::line(&serde_json::json!({ "queue": self.queue, "keys": keys }).to_string())?;
        } else {
            // To be pasted, so not made visible: a queue's name holds no control characters, or it was refused above.
            let quoted: Vec<String> = keys.iter().map(|key| format!("'{}'", key.replace('\'', r"'\''"))).collect();
            output::line(&quoted.join(" "))?;
        }
        Ok(Outcome::Done)
    }
}
