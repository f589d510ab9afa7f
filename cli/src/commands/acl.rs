//! `dueq acl`: the rights that a producer, a consumer or an operator of one queue needs, and no
//! more.

use clap::{Args, ValueEnum};
use dueq::admin::AclRole;

use crate::output::{Outcome, Usage};
use crate::shown::steers;
use crate::{Common, output};

#[derive(Args)]
#[command(after_help = "\
Prints one ACL SETUSER command, for the prompt or the standard input of redis-cli; replace PASSWORD
by a password. The user can do the work of the role in this queue, by EVALSHA and by FCALL, and can
touch no other queue. The command asks no server. A producer needs an existing queue: an operator
creates it with `dueq configure`.

Redis checks commands and keys, not scripts. So the user of a role can also send the commands of its
scripts by hand:
  - A producer can read and remove waiting messages, and read the tokens of leases, but cannot
    change a lease.
  - A producer increments counters in the queue's meta key, and so can add a number to any field of
    it. That can pause the queue, change its limits, make every client refuse it, or let callers set
    the clock (`dueq doctor` finds this).
  - A consumer can finish any message, but cannot push.
docs/protocol/operations.md lists what the roles can and cannot separate.

Example, which prints the password that it sets:
  pw=$(openssl rand -hex 32)
  dueq acl producer orders | sed \"s/PASSWORD/$pw/\" | redis-cli -u \"$REDIS_URL\"; echo \"$pw\"")]
pub(crate) struct Acl {
    /// The role
    #[arg(value_enum)]
    role: RoleName,
    /// The queue
    queue: String,
    /// The user [default: QUEUE-ROLE]
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum RoleName {
    /// Pushes, cancels, reschedules and reads messages
    Producer,
    /// Handles the messages of the queue
    Consumer,
    /// Everything in this queue
    Operator,
}

impl Acl {
    pub(crate) fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        let (role, word) = match self.role {
            RoleName::Producer => (AclRole::Producer, "producer"),
            RoleName::Consumer => (AclRole::Consumer, "consumer"),
            RoleName::Operator => (AclRole::Operator, "operator"),
        };
        let rules = dueq::admin::acl_rules(&self.queue, role)?;
        let user = self
            .user
            .unwrap_or_else(|| format!("{}-{word}", self.queue));
        if user.is_empty()
            || user
                .chars()
                .any(|c| c.is_whitespace() || c.is_control() || "()'\"\\".contains(c))
        {
            return Err(Usage(format!(
                "{user:?} is no user name: use no blanks, quotes, backslashes or parentheses"
            ))
            .into());
        }
        if common.json {
            let object = serde_json::json!({ "queue": self.queue, "role": word, "user": user, "rules": rules });
            output::json_line(&object)?;
        } else {
            let command = format!("ACL SETUSER {user} {} on >PASSWORD", rules.join(" "));
            // The user pastes this command. With an escaped name it would give rights to another
            // queue.
            if command.contains(steers) {
                let reason =
                    "the name of the queue or of the user has characters that steer a terminal";
                return Err(Usage(format!("{reason}: take the rules from --json")).into());
            }
            output::line(&command)?;
        }
        Ok(Outcome::Done)
    }
}
