//! The rules of a Redis ACL that give a user the least rights for its role on a queue.

use crate::error::Error;
use crate::protocol::keys::Keys;
use crate::protocol::pattern::Pattern;

/// A role that uses a queue, and what it may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AclRole {
    /// The user may call `push`, `upsert`, `cancel`, `reschedule`, `run_now`, `get`, `peek`,
    /// `dues`, and `remap` with `forward`. The queue must exist: an operator creates it with any
    /// call of `configure`.
    Producer,
    /// The user may call `beat`, `promote`, `claim`, the settlements, `extend`, `held`, `reap`,
    /// `stats`, `history`, `dues`, `nodes`; `schedules`, `refill`; `remap` with `forward`. It
    /// receives notices and wake-up tokens.
    Consumer,
    /// The user may make every call on this queue: limits, pause, requeue, purge, audit, deletion,
    /// schedules, and all that the other roles may.
    Operator,
}

/// Commands that call scripts and functions with the queue's keys. Redis checks each command of a
/// script as well.
const CALLS: &str = "+eval +evalsha +fcall";
/// Commands that every client needs besides scripts: the server's clock and fitness, PING, loading
/// scripts, and following a cluster.
const SERVER: [&str; 8] = [
    "+time",
    "+info",
    "+ping",
    "+unwatch",
    "+script|load",
    "+cluster|slots",
    "+cluster|info",
    "+asking",
];

/// Pairs of commands and of the keys that these commands may touch, both separated by blanks. Keys
/// are named by their suffix; `%` before one allows only to read it.
type Grants = &'static [(&'static str, &'static str)];

const PRODUCER: Grants = &[
    ("+hmget +hget +hlen +hexists", "%messages %attrs %meta"),
    // No +hmget: `ack` begins with an HMGET of claims, so Redis refuses an ack at once.
    ("+hget +hlen +hexists", "%claims"),
    (
        "+zrange +zcard +zcount +zscore +zmscore +zrank",
        "%scheduled %leases %dead %recent",
    ),
    ("+lrange +llen +lindex +exists", "%ready %wake %meta"),
    ("+zadd +zrem", "scheduled"),
    ("+lrem", "ready"),
    ("+hset +hdel", "messages attrs"),
    ("+zrem", "dead"),
    ("+zadd +zremrangebyrank", "recent"),
    // HSET writes a newer map of the partitions.
    ("+hset +hincrby", "meta"),
    ("+rpush", "wake"),
];

const CONSUMER: Grants = &[
    (
        "+hmget +hget +hlen +hexists",
        "%messages %attrs %claims %meta",
    ),
    // Not on `meta`: operators' scripts begin with an HSTRLEN of meta, so Redis refuses them at once.
    ("+hstrlen", "%messages"),
    (
        "+zrange +zcard +zcount",
        "%scheduled %leases %dead %recent %nodes",
    ),
    ("+zscore", "%leases"),
    // No +zscore on these keys: producers' scripts need it, so Redis refuses them to a consumer.
    ("+zmscore", "%scheduled %dead %recent"),
    ("+lrange +llen +lindex +exists", "%ready %wake %meta"),
    ("+zadd +zremrangebyrank", "scheduled dead"),
    ("+rpush +ltrim +lset", "ready"),
    ("+zadd +zrem", "leases"),
    ("+hset +hdel", "claims attrs"),
    // No +hset: a push needs it, so Redis refuses a push to a consumer.
    ("+hdel +hsetnx", "messages"),
    ("+zadd +zremrangebyrank", "recent"),
    ("+zadd +zrem +zremrangebyscore", "nodes"),
    ("+hset +hincrby", "meta"),
    ("+rpush +blpop", "wake"),
];

const OPERATOR: Grants = &[(
    "+hmget +hget +hlen +hexists +hstrlen +hscan +hset +hsetnx +hdel +hincrby \
     +zrange +zcard +zcount +zscore +zmscore +zrank +zscan +zadd +zrem +zremrangebyrank +zremrangebyscore \
     +lrange +llen +lindex +lpush +rpush +lrem +lset +ltrim +blpop \
     +exists +type +object|encoding +memory|usage +unlink",
    "*",
)];

/// The rules of `ACL SETUSER` that give a user exactly the rights of this role on this queue; each
/// rule is one argument. The first rule is `reset`, which takes all earlier rights from the user.
/// The caller puts the user's name before them, and `on` and the password behind them.
///
/// `*` and `?` in the name make it a pattern: `mail-*` gives these rights on every queue whose name
/// begins with `mail-`.
///
/// Redis checks commands and keys, not scripts: docs/protocol/operations.md says what that can
/// separate, and what it cannot.
///
/// ```
/// let rules = dueq::admin::acl_rules("orders", dueq::admin::AclRole::Producer)?;
/// assert_eq!(rules[0], "reset");
/// assert!(rules.contains(&"(+lrem ~dueq:{orders}:ready ~dueq:{orders/*}:ready)".to_owned()));
/// # Ok::<(), dueq::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if the name is not valid, or
/// contains a blank, a parenthesis or a quote, which no rule can contain.
pub fn acl_rules(queue: &str, role: AclRole) -> Result<Vec<String>, Error> {
    let keys = Keys::of_queue(queue)?;
    if let Some(bad) = queue
        .chars()
        .find(|c| c.is_whitespace() || "()'\"".contains(*c))
    {
        return Err(Error::invalid(format!(
            "queue name {queue:?} holds {bad:?}, which no rule of an ACL can"
        )));
    }
    let home = glob(keys.wake.trim_end_matches(":wake"));
    // A queue with a map has more partitions, whose keys begin with the queue's name and a slash.
    // No queue name contains a slash, so the pattern matches no key of another queue.
    let partitions = format!("{}/*}}", home.trim_end_matches('}'));
    let mut rules: Vec<String> = ["reset", "resetchannels"].map(str::to_owned).to_vec();
    let bases = [home, partitions];
    rules.extend(bases.iter().map(|base| format!("&{base}:notice")));
    rules.extend(SERVER.into_iter().chain(["+spublish"]).map(str::to_owned));
    let (grants, more): (Grants, &[&str]) = match role {
        AclRole::Producer => (PRODUCER, &["+wait"]),
        // SCAN finds the queues that match a pattern; PSUBSCRIBE reports new ones. WAIT follows the
        // end of a batch of moved messages.
        AclRole::Consumer => (
            CONSUMER,
            &[
                "+ssubscribe",
                "+sunsubscribe",
                "+psubscribe",
                "+scan",
                "+wait",
            ],
        ),
        AclRole::Operator => (
            OPERATOR,
            // PUBLISH announces a queue that the operator creates. The doctor uses CLUSTER NODES to
            // find slots that are stuck between two masters.
            &[
                "+publish",
                "+ssubscribe",
                "+sunsubscribe",
                "+script|exists",
                "+wait",
                "+cluster|nodes",
            ],
        ),
    };
    rules.extend(more.iter().map(|&command| command.to_owned()));
    if role == AclRole::Consumer {
        // Redis allows a subscription to a pattern of channels only if the ACL has exactly this
        // text.
        let new_queues = format!("&{}", Pattern::new(queue)?.notice_glob());
        if !rules.contains(&new_queues) {
            rules.push(new_queues);
        }
    }
    for (commands, places) in [&(CALLS, "*")].into_iter().chain(grants) {
        let patterns: Vec<String> = places
            .split(' ')
            .flat_map(|place| {
                bases.iter().map(move |base| match place.strip_prefix('%') {
                    Some(place) => format!("%R~{base}:{place}"),
                    None => format!("~{base}:{place}"),
                })
            })
            .collect();
        rules.push(format!("({commands} {})", patterns.join(" ")));
    }
    Ok(rules)
}

/// Turns a queue name into a pattern of an ACL: `*` and `?` stay wildcards, and every other
/// character matches only itself.
fn glob(text: &str) -> String {
    text.chars()
        .flat_map(|c| "[]\\".contains(c).then_some('\\').into_iter().chain([c]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acl_names_have_only_star_and_question_mark_as_wildcards() {
        let rules = acl_rules("a*[b]", AclRole::Consumer).expect("a name");
        assert!(
            rules.contains(&r"&dueq:{a*\[b\]}:notice".to_owned()),
            "{rules:?}"
        );
        for name in ["orders", "mail-?", "a*b*c", "a^*"] {
            let wanted = format!("&{}", Pattern::new(name).expect("a pattern").notice_glob());
            let rules = acl_rules(name, AclRole::Consumer).expect("a name");
            assert!(rules.contains(&wanted), "{wanted}: {rules:?}");
        }
        for bad in ["a b", "a)", "a'b", "", "a/b"] {
            assert!(acl_rules(bad, AclRole::Operator).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn acl_rules_do_not_reach_other_queues() {
        for role in [AclRole::Producer, AclRole::Consumer, AclRole::Operator] {
            for rule in acl_rules("orders", role).expect("a name") {
                for pattern in rule
                    .trim_matches(['(', ')'])
                    .split(' ')
                    .filter(|word| word.contains('~') || word.starts_with('&'))
                {
                    let mut bases = ["dueq:{orders}:", "dueq:{orders/*}:"].iter();
                    assert!(bases.any(|base| pattern.contains(base)), "{pattern}");
                }
                assert!(!rule.contains("+@") && !rule.contains("allkeys"), "{rule}");
            }
        }
    }
}
