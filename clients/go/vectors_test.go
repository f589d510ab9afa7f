package dueq

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"testing"
	"time"
)

type object = map[string]any

// vectors reads the lines that a test of the Rust library checks.
func vectors(t *testing.T, name string) []object {
	t.Helper()
	file, err := os.Open(filepath.Join("..", "vectors", name+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var lines []object
	for scanner := bufio.NewScanner(file); scanner.Scan(); {
		var line object
		if err := json.Unmarshal(scanner.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		t.Fatal("no vectors")
	}
	return lines
}

// same compares a value with what the JSON of a vector has.
func same(t *testing.T, line object, got, want any) {
	t.Helper()
	text, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	var plain any
	if err := json.Unmarshal(text, &plain); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(plain, want) {
		t.Errorf("%v: got %v, want %v", line, plain, want)
	}
}

func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

func fault(err error) object {
	var found *Error
	if !errors.As(err, &found) {
		return object{"error": nil}
	}
	return object{"kind": found.Kind, "applied": found.Applied, "code": orNull(found.Code), "retryable": found.Retryable()}
}

func TestVectorsOfRouting(t *testing.T) {
	for _, line := range vectors(t, "routing") {
		raw, _ := hex.DecodeString(line["id_hex"].(string))
		for count, index := range line["index_of"].(object) {
			partitions, _ := strconv.Atoi(count)
			same(t, line, indexOf(string(raw), partitions), index)
		}
		same(t, line, hex.EncodeToString([]byte(idOfFollowUp(string(raw), 1))), line["follow_up_hex"])
	}
}

func TestVectorsOfKeys(t *testing.T) {
	for _, line := range vectors(t, "keys") {
		found, err := keysOf(line["queue"].(string), line["tag"].(string))
		if want, refused := line["error"]; refused {
			same(t, line, fault(err), want)
			continue
		}
		same(t, line, []any{found.ten, found.wake, found.notice}, []any{line["keys"], line["wake"], line["notice"]})
	}
}

func TestVectorsOfMaps(t *testing.T) {
	for _, line := range vectors(t, "maps") {
		found, err := parseMap("orders", line["map"].(string))
		if want, refused := line["error"]; refused {
			same(t, line, fault(err), want)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		same(t, line, []any{found.epoch, found.oldTags, append([]string{}, found.newTags...)}, []any{line["epoch"], line["old"], line["new"]})
		for id, steps := range line["calls"].(object) {
			pairs := [][]string{}
			for _, step := range found.steps(id) {
				pairs = append(pairs, []string{step.tag, step.fence})
			}
			same(t, line, pairs, steps)
		}
	}
}

func TestVectorsOfErrors(t *testing.T) {
	for _, line := range vectors(t, "errors") {
		reply := line["reply"].(string)
		delete(line, "reply")
		same(t, line, fault(errorOfReply("here", reply)), any(line))
	}
}

func TestVectorsOfMessages(t *testing.T) {
	for _, line := range vectors(t, "messages") {
		options := []Option{ID("a")}
		for name, value := range line["options"].(object) {
			options = append(options, optionOf(t, name, value))
		}
		made := NewMessage([]byte("rate it"), options...)
		if want, refused := line["error"]; refused {
			same(t, line, fault(made.err), want)
			continue
		}
		same(t, line, []any{[]string{made.id, made.due, string(made.payload), made.options}, made.repeatable, made.err},
			[]any{line["arguments"], line["repeatable"], nil})
	}
}

func optionOf(t *testing.T, name string, value any) Option {
	number, _ := value.(float64)
	text, _ := value.(string)
	us := time.Duration(number) * time.Microsecond
	switch name {
	case "id":
		return ID(text)
	case "delay_us":
		return Delay(us)
	case "due_ms":
		return Due(time.UnixMilli(int64(number)))
	case "spread_us":
		return Spread(us)
	case "max_attempts":
		return MaxAttempts(int(number))
	case "on_conflict":
		return OnConflict(Conflict(text))
	case "trace_parent":
		return TraceParent(text)
	case "expires_after_us":
		return ExpiresAfter(us)
	case "expires_at_ms":
		return ExpiresAt(time.UnixMilli(int64(number)))
	case "on_expire":
		return OnExpire(Expiry(text))
	case "cost":
		return Cost(int(number))
	case "window_us":
		return Window(us)
	case "reuse":
		return Reuse()
	case "max_wait_us":
		return MaxWait(us)
	case "revive":
		return Revive()
	case "undo_ms":
		return UndoMs(int64(number))
	}
	t.Fatalf("no option %s", name)
	return nil
}

func TestVectorsOfResults(t *testing.T) {
	for _, line := range vectors(t, "results") {
		found, err := readResult(line["verb"].(string), line["result"].(string))
		if want, refused := line["error"]; refused {
			same(t, line, fault(err), want)
			continue
		}
		same(t, line, []any{found.outcome, found.ms, orNull(string(found.state)), err}, []any{line["outcome"], line["ms"], line["state"], nil})
	}
}

func TestVectorsOfConfirmations(t *testing.T) {
	for _, line := range vectors(t, "changes") {
		same(t, line, isChange(line["verb"].(string), line["result"].(string)), line["is_change"])
	}
	for _, line := range vectors(t, "waits") {
		replicas := int(line["replicas"].(float64))
		durability := Replicated(replicas, time.Second)
		if local, isFsynced := line["local"].(bool); isFsynced {
			durability = Fsynced(local, replicas, time.Second)
		}
		same(t, line, durability.shortfall(raw(line["answer"])) == "", line["confirmed"])
	}
}

func TestVectorsOfSchedules(t *testing.T) {
	for _, line := range vectors(t, "schedules") {
		made := Schedule{Name: line["name"].(string)}
		for name, value := range line["options"].(object) {
			setOption(t, &made, name, value)
		}
		arguments, err := made.arguments()
		arguments[5] = string(made.Payload)
		same(t, line, []any{arguments, err}, []any{line["arguments"], nil})
	}
}

func setOption(t *testing.T, schedule *Schedule, name string, value any) {
	number, _ := value.(float64)
	text, _ := value.(string)
	us, at := time.Duration(number)*time.Microsecond, time.UnixMilli(int64(number))
	switch name {
	case "every_us":
		schedule.Every = us
	case "payload":
		schedule.Payload = []byte(text)
	case "anchor_ms":
		schedule.Anchor = at
	case "missed":
		schedule.Missed = MissedPolicy(text)
	case "max":
		schedule.Max = int(number)
	case "within_us":
		schedule.Within = us
	case "overlap":
		schedule.Overlap = OverlapPolicy(text)
	case "jitter_us":
		schedule.Jitter = us
	case "start_ms":
		schedule.Start = at
	case "end_ms":
		schedule.End = at
	case "limit":
		schedule.Limit = int(number)
	case "max_attempts":
		schedule.MaxAttempts = int(number)
	case "expires_after_us":
		schedule.ExpiresAfter = us
	case "on_expire":
		schedule.OnExpire = Expiry(text)
	default:
		t.Fatalf("no option %s", name)
	}
}

func TestVectorsOfVerdicts(t *testing.T) {
	for _, line := range vectors(t, "verdicts") {
		then := verdictOf(line["result"].(string), line["repeated"].(bool), int64(line["latest_start_us"].(float64)))
		same(t, line, then, line["then"])
	}
}

// raw is a reply as go-redis returns it.
func raw(value any) any {
	switch value := value.(type) {
	case float64:
		return int64(value)
	case []any:
		for at := range value {
			value[at] = raw(value[at])
		}
	}
	return value
}

func TestVectorsOfReplies(t *testing.T) {
	for _, line := range vectors(t, "replies") {
		verb := line["verb"].(string)
		read, err := readReply(verb, raw(line["reply"]), 0, 0)
		var found object
		if err == nil && verb == "claim" {
			found, err = shownClaim(read)
		} else if err == nil {
			found, err = shownGet(read)
		}
		if want, refused := line["error"]; refused {
			same(t, line, fault(err), want)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		delete(line, "verb")
		delete(line, "reply")
		same(t, line, found, any(line))
	}
}

func shownClaim(read *reply) (object, error) {
	left, all, err := readClaim(read)
	shown := []object{}
	for _, one := range all {
		shown = append(shown, object{
			"id": one.id, "payload": one.payload, "due_ms": one.dueMs, "attempt": one.attempt, "crashes": one.crashes,
			"is_last_attempt": one.isLastAttempt, "trace_parent": orNull(one.traceParent),
			"expires_at_ms": one.expiresAtMs, "cost": one.cost, "snoozes": one.snoozes,
		})
	}
	return object{"left": left, "granted": shown, "header": object{
		"now_us": read.nowUs, "incarnation": read.incarnation, "seq": read.seq, "head_ms": read.headMs,
		"deadline_ms": read.deadlineMs, "paused": read.paused, "epoch": read.epoch,
	}}, err
}

func msOrNull(moment time.Time) any {
	if moment.IsZero() {
		return nil
	}
	return moment.UnixMilli()
}

func shownGet(read *reply) (object, error) {
	stored, end, err := readGet(read, "a")
	found := object{"stored": nil, "end": nil}
	if stored != nil {
		var limit any
		if stored.MaxAttempts != 0 {
			limit = stored.MaxAttempts
		}
		found["stored"] = object{
			"state": stored.State, "time_ms": msOrNull(stored.Time), "failures": stored.Failures, "crashes": stored.Crashes,
			"max_attempts": limit, "cost": stored.Cost, "error": stored.Error, "payload": string(stored.Payload),
			"next_due_ms": msOrNull(stored.NextDue),
		}
	}
	if end != nil {
		found["end"] = object{
			"kind": end.Kind, "ended_at_ms": msOrNull(end.EndedAt), "remembered_until_ms": msOrNull(end.RememberedUntil),
		}
	}
	return found, err
}
