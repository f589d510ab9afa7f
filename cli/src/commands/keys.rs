//! `dueq keys`: the ten keys of a queue, and producers in other languages.

use clap::Args;

use crate::output::Outcome;
use crate::{Common, output};

#[derive(Args)]
#[command(after_help = "\
Every script and function takes these ten keys in this order. They are quoted for a shell. --lang
prints a complete producer instead, ready to run; its head names the library of the language,
which has workers, too. The command asks no server.

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
        let keys = dueq::admin::queue_keys(&self.queue)?;
        if let Some(lang) = self.lang {
            let redis_cli = common.remedy("redis-cli -u \"$REDIS_URL\"");
            output::text_as_it_is(&snippet(lang, &self.queue, &redis_cli))?;
        } else if common.json {
            output::json_line(&serde_json::json!({ "queue": self.queue, "keys": keys }))?;
        } else {
            let words: Vec<String> = keys
                .iter()
                .map(|key| dueq::admin::shell_word(key.as_bytes()))
                .collect();
            output::line(&words.join(" "))?;
        }
        Ok(Outcome::Done)
    }
}

/// The language of a producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Lang {
    /// One command for redis-cli, to paste into a shell
    RedisCli,
    /// A shell script, with redis-cli
    Sh,
    /// Python, with redis-py
    Python,
    /// JavaScript on Node.js, with ioredis
    #[value(aliases = ["javascript", "typescript"])]
    Node,
    /// Go, with go-redis
    Go,
    /// Java, with Jedis
    Java,
}

/// The producer in this language for this queue: a file that takes ID DELAY_MS PAYLOAD [OPTION...],
/// or for redis-cli one command, which begins with `redis_cli`.
pub(crate) fn snippet(lang: Lang, queue: &str, redis_cli: &str) -> String {
    let Some((file, replacements)) = producer(lang) else {
        return one_push(queue, redis_cli);
    };
    let name = match lang {
        Lang::Sh => dueq::admin::shell_word(queue.as_bytes()),
        // All these languages read a JSON string as a string literal.
        _ => output::json(&queue.into()),
    };
    let with_usage = file.replacen("QUEUE ID DELAY_MS", "ID DELAY_MS", usize::MAX);
    replacements.iter().fold(with_usage, |text, (from, to)| {
        text.replacen(from, &to.replace("NAME", &name), 1)
    })
}

/// The push of the README, ready to paste: the ten keys, then the arguments of `dueq_push`.
fn one_push(queue: &str, redis_cli: &str) -> String {
    let keys = dueq::admin::queue_keys(queue).unwrap_or_default();
    let keys: Vec<String> = keys
        .iter()
        .map(|key| dueq::admin::shell_word(key.as_bytes()))
        .collect();
    format!(
        "{redis_cli} FCALL dueq_push 10 {} '' '' order:42 +2000 'rate order 42' ''\n",
        keys.join(" ")
    )
}

/// Parts of an example file, each with its replacement. NAME in a replacement becomes the queue's
/// name.
type Replacements = &'static [(&'static str, &'static str)];

/// The file of a language; redis-cli has none. `cli/clients` is a link, so that the package of this
/// crate has the files.
fn producer(lang: Lang) -> Option<(&'static str, Replacements)> {
    Some(match lang {
        Lang::RedisCli => return None,
        Lang::Sh => (
            include_str!("../../clients/push.sh"),
            &[(
                "queue=$1 id=$2 delay_ms=$3 payload=$4\nshift 4",
                "queue=NAME id=$1 delay_ms=$2 payload=$3\nshift 3",
            )],
        ),
        Lang::Python => (
            include_str!("../../clients/push.py"),
            &[(
                "queue, id, delay_ms, payload, *options = sys.argv[1:]",
                "queue, (id, delay_ms, payload, *options) = NAME, sys.argv[1:]",
            )],
        ),
        Lang::Node => (
            include_str!("../../clients/push.js"),
            &[(
                "const [queue, id, delayMs, payload, ...options] = process",
                "const queue = NAME;\n  const [id, delayMs, payload, ...options] = process",
            )],
        ),
        Lang::Go => (
            include_str!("../../clients/push.go"),
            &[
                ("len(args) < 4", "len(args) < 3"),
                ("args[4:]", "args[3:]"),
                (
                    "args[0], args[1], args[2], []byte(args[3])",
                    "NAME, args[0], args[1], []byte(args[2])",
                ),
            ],
        ),
        Lang::Java => (
            include_str!("../../clients/Push.java"),
            &[
                ("args.length < 4", "args.length < 3"),
                ("subList(4,", "subList(3,"),
                (
                    "queue = args[0], id = args[1], delayMs = args[2], payload = args[3]",
                    "queue = NAME, id = args[0], delayMs = args[1], payload = args[2]",
                ),
            ],
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn printed_producer_differs_only_in_the_queue_name() {
        for lang in Lang::value_variants() {
            let Some((file, replacements)) = producer(*lang) else {
                continue;
            };
            for (from, _) in replacements {
                assert_eq!(file.matches(from).count(), 1, "{lang:?}: {from}");
            }
            let filled = snippet(*lang, "orders", "redis-cli");
            assert!(
                file.contains("QUEUE") && !filled.contains("QUEUE") && !filled.contains("NAME}"),
                "{lang:?}"
            );
            assert!(
                filled.contains(if *lang == Lang::Sh {
                    "queue=orders id"
                } else {
                    "\"orders\""
                }),
                "{lang:?}"
            );
            let library = match lang {
                Lang::RedisCli | Lang::Sh => "",
                Lang::Python => "clients/python\n",
                Lang::Node => "clients/typescript\n",
                Lang::Go => "clients/go\n",
                Lang::Java => "clients/java\n",
            };
            assert!(filled.contains(library), "{lang:?}: {library}");
            let changed = file.lines().filter(|line| !filled.contains(line)).count();
            assert!(changed <= 5, "{lang:?}: {changed} lines changed");
        }
    }

    #[test]
    fn queue_names_stay_inside_their_quotes() {
        let name = r#"it's "so" \ $HOME `x` ${y} größe"#;
        assert!(
            snippet(Lang::Sh, name, "redis-cli")
                .contains(r#"queue='it'\''s "so" \ $HOME `x` ${y} größe' id=$1"#)
        );
        for lang in [Lang::Python, Lang::Node, Lang::Go, Lang::Java] {
            assert!(
                snippet(lang, name, "redis-cli")
                    .contains(r#""it's \"so\" \\ $HOME `x` ${y} größe""#),
                "{lang:?}"
            );
            assert!(
                snippet(lang, "a\u{9b}31m", "redis-cli").contains(r#""a\u009b31m""#),
                "{lang:?}"
            );
        }
        assert!(
            snippet(Lang::Sh, "a\u{9b}31m", "redis-cli")
                .contains(r#"queue="$(printf 'a\302\23331m')" id=$1"#)
        );
    }
}
