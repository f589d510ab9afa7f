package dueq

import (
	"context"
	"fmt"
	"strings"
	"time"
)

const (
	longestWait = time.Minute
	placeholder = "\x00" + "----------------------------------------------------------------------"
	// touch: a full server accepts a write after one that needs no memory, within one script.
	touch = "if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then " +
		"redis.call('HDEL', KEYS[1], '') redis.call('HSET', KEYS[1], ARGV[1], '') end"
)

// Durability is what must confirm pushes, cancels, reschedules and RunNow of a queue: see [Queue.Durability]. Made by
// [Replicated] and [Fsynced]. If fewer confirm in time, a call fails with [KindUnconfirmed]: the master has made the
// change and may lose it. The same call again waits again.
type Durability struct {
	command  string
	local    bool
	replicas int
	timeout  time.Duration
}

// Replicated waits for the memory of so many replicas (WAIT), for 1 ms to a minute.
func Replicated(replicas int, timeout time.Duration) Durability {
	return Durability{"WAIT", false, replicas, timeout}
}

// Fsynced waits for the disk of the master if `local`, and for those of so many replicas (WAITAOF of Redis 7.2 and
// Valkey).
func Fsynced(local bool, replicas int, timeout time.Duration) Durability {
	return Durability{"WAITAOF", local, replicas, timeout}
}

func (d Durability) check() error {
	if d.replicas < 0 || d.replicas == 0 && !d.local {
		return invalid("a durability with %d replicas waits for nothing", d.replicas)
	}
	if d.timeout < time.Millisecond || d.timeout > longestWait {
		return invalid("the timeout of a durability is %s, it must be 1 ms to %s", d.timeout, longestWait)
	}
	return nil
}

// words are the command that waits; for no replica it only finds out whether the server can wait.
func (d Durability) words(replicas int, timeout time.Duration) []any {
	words := []any{d.command}
	if d.command == "WAITAOF" {
		local := "0"
		if d.local {
			local = "1"
		}
		words = append(words, local)
	}
	return append(words, fmt.Sprint(replicas), fmt.Sprint(milliseconds(timeout)))
}

// shortfall is what has not confirmed, by the answer to the command; empty if nothing is missing.
func (d Durability) shortfall(value any) string {
	all, isList := value.([]any)
	if !isList {
		all = []any{int64(1), value}
	}
	if len(all) != 2 {
		return fmt.Sprintf("%s answered %v", d.command, value)
	}
	own, ok := all[0].(int64)
	others, ok2 := all[1].(int64)
	if !ok || !ok2 {
		return fmt.Sprintf("%s answered %v", d.command, value)
	}
	var missing []string
	if d.local && own < 1 {
		missing = append(missing, "the master's disk did not confirm it")
	}
	if others < int64(d.replicas) {
		missing = append(missing, fmt.Sprintf("only %d of %d replicas confirmed it", others, d.replicas))
	}
	if missing == nil {
		return ""
	}
	return strings.Join(missing, " and ") + " within " + d.timeout.String()
}

// confirmed is the reply of a script, and what has not confirmed it, or why the wait failed; nil if nothing is missing.
type confirmed struct {
	value   any
	missing *Error
}

// runDurably calls a script and waits on the same connection: another one may lead to another master.
func (s *server) runDurably(asking bool, verb string, keys []string, arguments []any, d Durability) (any, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	connection := s.client.WithTimeout(responseLimit + d.timeout).Conn()
	defer connection.Close()
	send := func(asking bool, words ...any) (any, error) { return s.sendBy(connection, asking, words) }
	if _, can := s.canWait.Load(d.command); !can {
		if _, err := send(false, d.words(0, time.Millisecond)...); err != nil {
			return nil, unfit(s.address, asError(err))
		}
		s.canWait.Store(d.command, true)
	}
	value, err := evaluate(send, asking, verb, keys, arguments)
	if err != nil {
		return nil, err
	}
	if read, err := readReply(verb, value, 0, 0); err != nil || read.incarnation == "" {
		return confirmed{value: value}, nil // without a queue there is nothing to lose
	}
	// WAIT counts the writes of its own connection, and a script that finds its work done writes nothing.
	if _, err = send(asking, "EVAL", touch, 1, keys[5], placeholder); err == nil {
		var count any
		if count, err = send(false, d.words(d.replicas, d.timeout)...); err == nil {
			if short := d.shortfall(count); short != "" {
				return confirmed{value, unconfirmed(verb, short)}, nil
			}
			return confirmed{value: value}, nil
		}
	}
	failure := asError(err)
	if failure.Code == "MOVED" || failure.Code == "ASK" {
		failure = unavailable("the keys are at another server now: %s", failure.Text).with(AppliedUnknown)
	}
	return confirmed{value, failure}, nil
}

func unfit(address string, failure *Error) *Error {
	detail, why := strings.ToLower(failure.detail), ""
	switch {
	case strings.Contains(detail, "unknown command"):
		why = "waiting for disks needs WAITAOF: Redis 7.2 or newer, or Valkey"
	case strings.Contains(detail, "appendonly is disabled"):
		why = "it keeps no append-only file: CONFIG SET appendonly yes"
	default:
		return failure.with(AppliedNo)
	}
	return &Error{Kind: KindUnsupported, Applied: AppliedNo, Text: "redis at " + address + " is not fit: " + why}
}

func unconfirmed(verb, short string) *Error {
	text := verb + ": the master has done it, but " + short + "; a failover may undo it: the same call again waits again"
	return &Error{Kind: KindUnconfirmed, Applied: AppliedYes, Text: text}
}

// isChange says whether a result must be confirmed before its caller gets it, also one of a change made before.
func isChange(verb, text string) bool {
	word, _, _ := strings.Cut(text, " ")
	switch verb {
	case "push", "upsert":
		return word == "CREATED" || word == "EXISTS" || word == "MOVED" || word == "NEXT"
	case "cancel":
		return word == "CANCELLED"
	case "run_now":
		return word == "MOVED" || word == "ALREADY"
	}
	return word == "MOVED"
}

func (s *servers) runDurably(verb string, keys []string, arguments []any, d Durability) (any, error) {
	return s.send(context.Background(), keys[0], func(server *server, asking bool) (any, error) {
		return server.runDurably(asking, verb, keys, arguments, d)
	})
}
