//! `dueq acl`: the rights that a producer, a consumer or an operator of one queue needs, and no more.

use clap::{Args, ValueEnum};
use dueq::Role;

use crate::output::{Outcome, Usage};
use crate::shown::steers;
use crate::{Common, output};

#[derive(Args)]
#[command(after_help = "\
Prints one ACL SETUSER command, for the prompt or the standard input of redis-cli; put a password in the place of PASSWORD.
The user may do the work of the role in this queue, by EVALSHA and FCALL alike, and touches no other queue. No server is
asked. A producer needs a queue that exists: an operator makes it, with any `dueq configure`.

Redis judges commands and keys, not scripts: what a role's scripts do, its user may do by hand, too. A producer can take
back and read what waits, and read the tokens of leases, but change no lease; a consumer can finish any message, but pushes
nothing.
A producer counts what it pushes, and so may add a number to any field of the queue's meta by hand: that pauses the queue,
changes its limits, has every client refuse it, or lets callers bring a clock of their own (`dueq doctor` finds that one).
docs/protocol/operations.md says what is kept apart and what cannot be.

Example, which prints the password that it sets:
  pw=$(openssl rand -hex 32)
  dueq acl producer orders | sed \"s/PASSWORD/$pw/\" | redis-cli -u \"$REDIS_URL\"; echo \"$pw\"")]
pub(crate) struct Acl {
    /// The role
    #[arg(value_enum)]
    role: Who,
    /// The queue
    queue: String,
    /// The user [default: QUEUE-ROLE]
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Who {
    /// Pushes, cancels, reschedules, looks at messages
    Producer,
    /// Works the queue
    Consumer,
    /// Everything in this queue
    Operator,
}

impl Acl {
    pub(crate) fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        let (role, word) = match self.role {
            Who::Producer => (Role::Producer, "producer"),
            Who::Consumer => (Role::Consumer, "consumer"),
            Who::Operator => (Role::Operator, "operator"),
        };
        let rules = dueq::acl_rules(&self.queue, role)?;
        let user = self
            .user
            .unwrap_or_else(|| format!("{}-{word}", self.queue));
        if user.is_empty()
            || user
                .chars()
                .any(|c| c.is_whitespace() || c.is_control() || "()'\"\\".contains(c))
        {
            return Err(Usage(format!(
                "{user:?} is no name of a user: no blanks, quotes or parentheses"
            ))
            .into());
        }
        if common.json {
            let object = serde_json::json!({ "queue": self.queue, "role": word, "user": user, "rules": rules });
            output::json_line(&object)?;
        } else {
            let command = format!("ACL SETUSER {user} {} on >PASSWORD", rules.join(" "));
            // It is to be pasted: made visible it would be about another queue.
            if command.contains(steers) {
                let reason =
                    "the name of the queue, or of the user, holds characters that steer a terminal";
                return Err(Usage(format!("{reason}: take the rules from --json")).into());
            }
            output::line(&command)?;
        }
        Ok(Outcome::Done)
    }
}
