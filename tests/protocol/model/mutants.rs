//! The test of the test: scripts broken on purpose, each of which the model must notice.

use anyhow::{Context, Result, bail, ensure};

use crate::model::run;
use crate::queue::Calls;
use crate::scripts::SCRIPTS;

/// Far more steps than any of these needs to be noticed.
const PATIENCE: usize = 6_000;

/// What is broken, in which script, by replacing what with what.
const MUTANTS: &[(&str, &str, &str, &str)] = &[
    ("ack ignores the token", "ack", "string.find(claim, token, 1, true) == 1", "true"),
    ("promote does not remove", "promote", "redis.call('ZREMRANGEBYRANK', SCHEDULED, '0', #entries - 1)", ""),
    (
        "claim does not remove what is due",
        "claim",
        "redis.call('ZREMRANGEBYRANK', SCHEDULED, '0', taken - unlisted - 1)",
        "local _ = 0",
    ),
    ("ack counts what is given twice", "ack", "if deleted ~= n then", "if not deleted then"),
    ("push tells the head of before", "push", "math.min(head, due or head)", "head"),
    ("push tells the head of before a message moved", "push", "head, length = nil, nil", "length = nil"),
    ("claim tells the deadline of before", "claim", "n > 0 and math.min(old_deadline, deadline)", "n < 0 and 0"),
    ("claim counts what it took as ready", "claim", "old_length - unlisted)", "old_length)"),
    ("promote counts the ready of before", "promote", "old_length + #entries)", "old_length)"),
    (
        "ack tells the deadline of before",
        "ack",
        "finish(true, false, old_head, nil, old_length)",
        "finish(true, false, old_head, old_deadline, old_length)",
    ),
    ("resume tells no head", "resume", "finish(changed, false, head,", "finish(changed, false, nil,"),
    ("push makes two of one id", "push", "unpack(dues)) == count", "unpack(dues)) > 0"),
    ("promote is early by a fraction", "promote", "'-inf', now, 'BYSCORE'", "'-inf', now_up, 'BYSCORE'"),
    (
        "promote loses the order",
        "promote",
        "redis.call('RPUSH', READY, unpack(entries))",
        "for _, e in ipairs(entries) do redis.call('LINSERT', READY, 'AFTER', redis.call('LINDEX', READY, 0), e) end",
    ),
    ("cancel forgets ready", "cancel", "unlisted[entry(id) or ''] = true", "local _ = 0"),
    ("a repeated cancel takes what was pushed since", "cancel", "recent % 1 == 0.25", "false"),
    ("a repeated cancel asks for no time", "cancel", "and math.floor(recent) - REPEAT_MS >= tonumber(since)", ""),
    ("cancel forgets attrs", "cancel", "redis.call('HDEL', ATTRS, id)", ""),
    ("push forgets who was here", "push", "if finished then return finished end", ""),
    ("push takes a later call for a repetition", "push", "last - REPEAT_MS > until_ms - 10000 + 0.0005", "true"),
    ("push takes no call for a repetition of one", "push", "last - REPEAT_MS > until_ms - 10000 + 0.0005", "false"),
    ("push remembers too few", "push", "if soon then noted[#noted + 1] = id end", ""),
    (
        "push forgets what it found",
        "push",
        "noted[#noted + 1] = id\n      return 'EXISTS ' .. state",
        "return 'EXISTS ' .. state",
    ),
    ("push forgets the call", "push", "mark = until_ms and marked and live(marked)", "mark = nil"),
    ("push takes one call for another", "push", "'\\3' .. ARGV[2]", "'\\3'"),
    ("push remembers what comes later", "push", "near or due and due - now <= REPEAT_MS", "true"),
    ("push takes what was judged one by one for all", "push", ".. '.5', call)", ", call)"),
    ("push takes until itself", "push", "until_ms <= now", "until_ms < now"),
    ("push leaves a cancel as it was", "push", ".. '.25', id)", ".. '.5', id)"),
    ("cancel does not say when", "cancel", "    remember_end(id)\n", ""),
    ("the latest end goes back with the clock", "cancel", "RECENT, 'GT', memory_ms", "RECENT, memory_ms"),
    ("push counts a delay from the past", "push", "(ahead and now_up or 0)", "(ahead and now or 0)"),
    ("push moves what is leased", "push", "or state == 'leased'", ""),
    ("push drops the trace", "push", "then parent = word", "then parent = ''"),
    ("claim does not look at the due", "claim", "if payload and due > now then", "if false then"),
    ("cancel forgets nothing", "cancel", "forget(#memory)", ""),
    ("claim hurries past other details", "claim", "(details or told == shared)", "true"),
    ("claim leaves the lease out", "claim", "redis.call('ZADD', LEASES, deadline, '\\1' .. token)", ""),
    ("claim counts one too many", "claim", "'\\2' .. token, n", "'\\2' .. token, n + 1"),
    (
        "claim tells the first details for all",
        "claim",
        "elseif not details and detail ~= shared then",
        "elseif false then",
    ),
    ("ack leaves the claim's lease", "ack", "if group.ended > 0 then fewer(group.token, group.ended) end", ""),
    (
        "ack leaves a lease of its own",
        "ack",
        "if #extended > 0 then redis.call('ZREM', LEASES, unpack(extended)) end",
        "",
    ),
    (
        "ack takes what was extended for the claim's",
        "ack",
        "or own(claim) then sound = false break end",
        "then sound = false break end",
    ),
    ("a settle counts two", "release", "fewer(string.sub(claim, 1, 16), 1)", "fewer(string.sub(claim, 1, 16), 2)"),
    ("extend does not leave the claim's lease", "extend", "      fewer(string.sub(claim, 1, 16), 1)\n", ""),
    (
        "extend does not say so",
        "extend",
        "redis.call('HSET', CLAIMS, id, claim .. '+')",
        "redis.call('HSET', CLAIMS, id, claim)",
    ),
    ("reap takes what others have", "reap", "string.find(claim, token, 1, true) == 1 and not own(claim)", "true"),
    ("reap takes what was extended", "reap", "== 1 and not own(claim) then", "== 1 then"),
    ("reap forgets what it left", "reap", "if left > 0 then redis.call('HSET'", "if false then redis.call('HSET'"),
    ("claim ignores the other nodes", "claim", "math.max(1, nodes)", "1"),
    (
        "extend shortens",
        "extend",
        "math.max(now_up + lease_ms, tonumber(redis.call('ZSCORE', LEASES, lease_of(id, claim)) or 0))",
        "now_up + lease_ms",
    ),
    ("reap ignores the hold", "reap", "or now < tonumber(hold or 0)", ""),
    ("reap does not wait after a crash", "reap", "* (0.5 + chance)", "* 0"),
    ("retry does not count", "retry", "failures + 1, changed + 1", "failures, changed + 1"),
    ("again keeps the failures", "again", "set_attrs(id, 0, 0, nil, options, '')", ""),
    (
        "release charges an attempt",
        "release",
        "set_attrs(id, failures, crashes, nil,",
        "set_attrs(id, failures + 1, crashes, nil,",
    ),
    ("reschedule ignores what is expected", "reschedule", "tonumber(expected) ~= tonumber(current)", "false"),
    ("requeue keeps the attempts", "requeue", "set_attrs(id, 0, 0, nil, options, '')", ""),
    ("purge keeps the payload", "purge", "redis.call('HDEL', MESSAGES, unpack(ids))", ""),
    ("beat never lets go of the lead", "beat", "tonumber(lead_until) <= now", "false"),
    ("nobody is rung after a push", "push", "redis.pcall('RPUSH', bell, '1')", ""),
    ("resume does not ring", "resume", "paused, old_head = false, math.huge", "old_head = math.huge"),
];

#[test]
fn every_broken_script_is_noticed() -> Result<()> {
    for (what, verb, part, replacement) in MUTANTS {
        let (name, source) = SCRIPTS.iter().find(|(name, _)| name == verb).context("no such script")?;
        ensure!(source.contains(part), "{what}: {verb}.lua no longer has {part}");
        let Err(noticed) = run(7, PATIENCE, Calls::Evalsha, &[(name, source.replace(part, replacement))]) else {
            bail!("{what}: not noticed in {PATIENCE} steps");
        };
        let reason = format!("{:#}", noticed.root_cause());
        println!("{what}: {}", reason.split("\n").next().unwrap_or_default());
        ensure!(!reason.contains("error("), "{what}: a script that fails proves nothing: {reason}");
    }
    Ok(())
}
