//! A queue on its own server, which the tests call through scripts and functions only.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use dueq::admin::AclRole;
use dueq_testkit::Server;
use redis::{Cmd, Connection, ConnectionLike};

use crate::frozen;
use crate::reply::{Reply, Text, acked, words};
use crate::scripts::{self, SCRIPTS};
use crate::state::{KEYS, State};
pub(crate) use crate::state::{keys_of, partition};
use crate::vectors::user_of_0_1;

/// The time at which the tests begin, in Unix ms.
pub(crate) const T0: u64 = 1_700_000_000_000;
pub(crate) const SECOND: u64 = 1_000;
pub(crate) const HOUR: u64 = 3_600_000;
pub(crate) const DAY: u64 = 24 * HOUR;

/// How the tests call a verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Calls {
    /// Each call runs the script by EVALSHA.
    Evalsha,
    /// Each call runs the function of the Functions library by FCALL.
    Fcall,
    /// Calls run the script and the function in turn.
    InTurn,
    /// Scripts and functions in turn, each by a user with only the rights of the verb's role.
    ByRole,
    /// Like `ByRole`, with the rights of release 0.1.
    ByRoleOf01,
    /// In turn the script, the script of the frozen release 0.1 and the function of that release's
    /// library.
    BesideFrozen,
}

/// The role that a verb belongs to.
pub(crate) fn role_of(verb: &str) -> AclRole {
    scripts::verb(verb).role
}

/// Timeout of a reply: far more than a server needs.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Queue {
    pub(crate) server: Server,
    pub(crate) connection: Connection,
    base: String,
    scripts: BTreeMap<&'static str, Text>,
    /// The scripts of release 0.1, for `Calls::BesideFrozen`.
    frozen: BTreeMap<String, Text>,
    calls: Calls,
    /// A connection of each role, for `Calls::ByRole` and `Calls::ByRoleOf01`.
    users: Vec<(AclRole, Connection)>,
    /// Whether release 0.1 answered the last call.
    pub(crate) was_frozen: bool,
    /// How many calls were made, which decides the turns.
    called: usize,
    tokens: usize,
    /// Whether reads send ASKING first: a server shows keys of a slot that it imports only after
    /// ASKING.
    cluster: bool,
}

/// The argument `attempt` of a push call whose first try is at `first_ms`. Different numbers make
/// different calls.
pub(crate) fn attempt(first_ms: u64, number: u64) -> String {
    format!("{} nonce{number:08}", first_ms + 10_000)
}

/// A token made of one character.
pub(crate) fn token(character: char) -> Text {
    character.to_string().repeat(16).into()
}

/// A connection with timeouts.
pub(crate) fn connect(url: &str) -> Result<Connection> {
    let connection = redis::Client::open(url)?.get_connection()?;
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.set_write_timeout(Some(PATIENCE))?;
    Ok(connection)
}

/// Sends a command and returns the reply. An error of the server is a reply, too.
pub(crate) fn command(connection: &mut Connection, words: &[Text]) -> Result<Reply> {
    let mut command = Cmd::new();
    for word in words {
        command.arg(&word.0);
    }
    Reply::from_server(connection.req_command(&command))
}

impl Queue {
    /// Starts a server with the empty queue `q`, which allows calls that set their own time.
    pub(crate) fn start() -> Result<Self> {
        Self::start_with(&[])
    }

    /// Like `start`, on a server with further arguments.
    pub(crate) fn start_with(arguments: &[&str]) -> Result<Self> {
        let server = Server::start(arguments)?;
        let connection = connect(&server.url())?;
        let cluster = arguments.contains(&"--cluster-enabled");
        let (base, scripts) = ("dueq:{q}".to_owned(), BTreeMap::new());
        let (calls, users, called, tokens) = (Calls::Evalsha, Vec::new(), 0, 0);
        let mut queue = Self {
            server,
            connection,
            base,
            scripts,
            frozen: BTreeMap::new(),
            was_frozen: false,
            calls,
            users,
            called,
            tokens,
            cluster,
        };
        for (verb, source) in SCRIPTS {
            queue.load(verb, &scripts::read(verb, source)?)?;
        }
        queue.command(words!["HSET", "dueq:{q}:meta", "test", "1"])?;
        Ok(queue)
    }

    /// Sets how the following calls reach the verbs.
    pub(crate) fn through(&mut self, calls: Calls) -> Result<()> {
        if calls != Calls::Evalsha {
            let code = match calls {
                Calls::BesideFrozen => frozen::functions()?,
                _ => dueq::admin::functions_code(),
            };
            let loaded = self.command(words!["FUNCTION", "LOAD", "REPLACE", code])?;
            ensure!(loaded.text()? == "dueq");
        }
        if [Calls::ByRole, Calls::ByRoleOf01].contains(&calls) {
            for role in [AclRole::Producer, AclRole::Consumer, AclRole::Operator] {
                let connection = match calls {
                    Calls::ByRole => self.user(role, "q")?,
                    _ => user_of_0_1(self, role)?,
                };
                self.users.push((role, connection));
            }
        }
        if calls == Calls::BesideFrozen {
            for (verb, source) in frozen::scripts()? {
                let sha = self.command(words!["SCRIPT", "LOAD", source])?;
                self.frozen.insert(verb, sha.bytes()?.clone());
            }
        }
        self.calls = calls;
        Ok(())
    }

    /// Whether every other call runs a function.
    fn takes_turns(&self) -> bool {
        self.calls == Calls::InTurn || !self.users.is_empty()
    }

    /// A connection of a user who has this role in this queue and no other right.
    pub(crate) fn user(&mut self, role: AclRole, queue: &str) -> Result<Connection> {
        let name = format!("{role:?}-{queue}");
        let rules = dueq::admin::acl_rules(queue, role)?
            .into_iter()
            .map(Text::from);
        let words = [
            words!["ACL", "SETUSER", &name],
            rules.collect(),
            words!["on", ">secret"],
        ]
        .concat();
        ensure!(self.command(words)? == "OK".into());
        connect(&format!(
            "redis://{name}:secret@127.0.0.1:{}/",
            self.server.port()
        ))
    }

    /// Deletes every key. The scripts stay loaded.
    pub(crate) fn empty(&mut self) -> Result<()> {
        self.command(words!["FLUSHALL"])?;
        let meta = self.key("meta");
        self.command(words!["HSET", meta, "test", "1"])?;
        Ok(())
    }

    /// Loads the source that the verb runs from now on.
    pub(crate) fn load(&mut self, verb: &'static str, source: &str) -> Result<()> {
        let loaded = self.command(words!["SCRIPT", "LOAD", source])?;
        self.scripts.insert(
            verb,
            loaded
                .bytes()
                .with_context(|| format!("{verb}.lua"))?
                .clone(),
        );
        Ok(())
    }

    /// A token that no claim has had.
    pub(crate) fn new_token(&mut self) -> Text {
        self.tokens += 1;
        format!("token {:010}", self.tokens).into()
    }

    /// Sends further calls to the partition with this tag (`-` is the home), which allows calls
    /// that set their own time.
    pub(crate) fn enter(&mut self, tag: &str) -> Result<()> {
        self.base = partition(tag);
        let meta = self.key("meta");
        self.command(words!["HSET", meta, "test", "1"])?;
        Ok(())
    }

    pub(crate) fn key(&self, suffix: &str) -> String {
        format!("{}:{suffix}", self.base)
    }

    pub(crate) fn command(&mut self, words: Vec<Text>) -> Result<Reply> {
        command(&mut self.connection, &words)
    }

    /// Runs a verb at a time in ms (a number, or text with a fraction), with the rest of ARGV.
    pub(crate) fn call(
        &mut self,
        verb: &str,
        now: impl Into<Text>,
        arguments: Vec<Text>,
    ) -> Result<Reply> {
        let mut argv = vec![now.into()];
        argv.extend(arguments);
        self.call_with(verb, keys_of(&self.base), argv)
    }

    /// Runs a verb with these KEYS and all of ARGV.
    pub(crate) fn call_with(
        &mut self,
        verb: &str,
        keys: Vec<Text>,
        argv: Vec<Text>,
    ) -> Result<Reply> {
        let script = self
            .scripts
            .get(verb)
            .with_context(|| format!("no script {verb}"))?;
        self.called += 1;
        let in_turn = self.takes_turns() && self.called.is_multiple_of(2);
        let function = (self.calls == Calls::Fcall || in_turn) && !scripts::are_replaced();
        let frozen = self.frozen.get(verb).filter(|_| frozen::knows(verb, &argv));
        self.was_frozen = frozen.is_some() && !self.called.is_multiple_of(3);
        let mut words = match (frozen, self.called % 3) {
            (Some(sha), 1) => words!["EVALSHA", sha, keys.len() as u64],
            (Some(_), 2) => words!["FCALL", format!("dueq_{verb}"), keys.len() as u64],
            _ if function => words!["FCALL", format!("dueq_{verb}"), keys.len() as u64],
            _ => words!["EVALSHA", script, keys.len() as u64],
        };
        let items = match verb {
            "push" | "upsert" => argv.len().saturating_sub(2) / 4,
            "ack" => acked(argv.get(1..).unwrap_or_default()),
            _ => 0,
        };
        words.extend(keys);
        let is_of_operators = verb == "reap" && argv.get(1) == Some(&"ids".into());
        let role = if is_of_operators {
            AclRole::Operator
        } else {
            role_of(verb)
        };
        words.extend(argv);
        // These users cannot create a queue: only an operator's call does.
        let exists = !self.users.is_empty() && {
            let meta = self.key("meta");
            self.command(words!["HEXISTS", meta, "layout"])?.int()? == 1
        };
        let reply = match self.users.iter_mut().find(|(of, _)| exists && *of == role) {
            Some((_, connection)) => command(connection, &words),
            None => self.command(words),
        }?;
        // If all items share one result, the reply has it once.
        Ok(match verb {
            "push" | "ack" => reply.of_items(items),
            _ => reply,
        })
    }

    /// Like `call`, but fails if the script does.
    pub(crate) fn ok(
        &mut self,
        verb: &str,
        now: impl Into<Text>,
        arguments: Vec<Text>,
    ) -> Result<Reply> {
        let reply = self.call(verb, now, arguments)?;
        ensure!(reply.code().is_none(), "{verb}: {reply:?}");
        Ok(reply)
    }

    /// The item results of a batch call.
    pub(crate) fn items(
        &mut self,
        verb: &str,
        now: impl Into<Text>,
        arguments: Vec<Text>,
    ) -> Result<Vec<String>> {
        self.ok(verb, now, arguments)?.items()
    }

    /// Pushes one message without `until` and options, and returns its result.
    pub(crate) fn push(
        &mut self,
        now: u64,
        id: &str,
        due: impl Into<Text>,
        payload: &str,
    ) -> Result<String> {
        let mut replies = self.items("push", now, words!["", id, due, payload, ""])?;
        replies.pop().context("no reply to the message")
    }

    /// Promotes up to 1,000 messages, claims up to `count` of them for 30 s and returns their ids.
    pub(crate) fn take(&mut self, now: u64, count: u64, token: &Text) -> Result<Vec<String>> {
        self.ok("promote", now, words![1000])?;
        let reply = self.ok("claim", now, words![count, token, 30 * SECOND])?;
        reply.granted()
    }

    /// The whole state, read in one round trip. In a cluster, the part on this node.
    pub(crate) fn state(&mut self) -> Result<State> {
        if self.cluster {
            let contents = self.contents()?;
            let content = |suffix: &str| {
                let found = contents.get(&self.key(suffix).into());
                let items = found.map(|(_, content)| content.iter().map(Reply::from).collect());
                Reply::List(items.unwrap_or_default())
            };
            let replies: Vec<Reply> = KEYS.iter().copied().chain(["wake"]).map(content).collect();
            return State::from_replies(&replies);
        }
        let mut pipeline = redis::pipe();
        let commands = State::commands(&self.base);
        for words in &commands {
            let (name, rest) = words.split_first().context("an empty command")?;
            pipeline.cmd(name).arg(rest);
        }
        let packed = pipeline.get_packed_pipeline();
        let replies = self
            .connection
            .req_packed_commands(&packed, 0, commands.len())?;
        State::from_replies(
            &replies
                .into_iter()
                .map(|value| Reply::from_server(Ok(value)))
                .collect::<Result<Vec<_>>>()?,
        )
    }

    /// The type and the content of every key of the server, byte for byte. DUMP is not used,
    /// because a mere read may change the order of its hash fields.
    pub(crate) fn contents(&mut self) -> Result<BTreeMap<Text, (String, Vec<Text>)>> {
        let keys = self.command(words!["KEYS", "*"])?;
        let mut contents = BTreeMap::new();
        for key in keys.list()? {
            let key = key.bytes()?;
            let kind = self.read(words!["TYPE", key])?.text()?;
            let read = match kind.as_str() {
                "string" => words!["GETRANGE", key, 0, "-1"],
                "list" => words!["LRANGE", key, 0, "-1"],
                "hash" => words!["HGETALL", key],
                "zset" => words!["ZRANGE", key, 0, "-1", "WITHSCORES"],
                _ => bail!("a key of type {kind}"),
            };
            let mut content = match self.read(read)? {
                Reply::List(items) => items
                    .iter()
                    .map(|item| item.bytes().cloned())
                    .collect::<Result<_>>()?,
                other => vec![other.bytes()?.clone()],
            };
            if kind == "hash" {
                let mut pairs: Vec<_> = content.chunks_exact(2).map(<[Text]>::to_vec).collect();
                pairs.sort();
                content = pairs.concat();
            }
            contents.insert(key.clone(), (kind, content));
        }
        Ok(contents)
    }

    fn read(&mut self, words: Vec<Text>) -> Result<Reply> {
        if self.cluster {
            self.command(words!["ASKING"])?;
        }
        self.command(words)
    }
}
