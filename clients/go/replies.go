package dueq

import (
	"strconv"
	"strings"
	"time"
)

// header is the first element of every reply. A head or deadline of nil: nothing is scheduled or leased.
type header struct {
	nowUs       int64
	incarnation string
	seq         int64
	headMs      *int64
	deadlineMs  *int64
	paused      bool
	epoch       *int64
}

// headPassed holds if the head was due at the time of the call.
func (h header) headPassed() bool { return h.headMs != nil && *h.headMs*1_000 <= h.nowUs }

// reply of a script, and between which times of the monotonic clock the call was made.
type reply struct {
	header
	body           []any
	sent, received time.Duration
	missing        *Error // what has not confirmed it
}

func readReply(verb string, raw any, sent, received time.Duration) (*reply, error) {
	all, _ := raw.([]any)
	if len(all) == 0 {
		return nil, unexpected(verb, raw)
	}
	head, _ := all[0].([]any)
	if len(head) < 6 {
		return nil, unexpected(verb, raw)
	}
	numbers := make([]int64, len(head))
	for at, value := range head {
		if number, ok := value.(int64); ok {
			numbers[at] = number
		} else if at < 7 && at != 1 {
			return nil, unexpected(verb, raw)
		}
	}
	incarnation, ok := head[1].(string)
	if !ok {
		return nil, unexpected(verb, raw)
	}
	read := header{numbers[0], incarnation, numbers[2], timeOf(numbers[3]), timeOf(numbers[4]), numbers[5] != 0, nil}
	if len(head) > 6 {
		read.epoch = &numbers[6]
	}
	return &reply{header: read, body: all[1:], sent: sent, received: received}, nil
}

// timeOf: a negative time other than -1 was not written by dueq. It counts as past, so that due work is not missed.
func timeOf(ms int64) *int64 {
	if ms == -1 {
		return nil
	}
	ms = max(ms, 0)
	return &ms
}

// number is an element of the body; 0 if there is none.
func (r *reply) number(at int) int64 {
	if at >= len(r.body) {
		return 0
	}
	number, _ := r.body[at].(int64)
	return number
}

// text is an element of the body; empty if there is none.
func (r *reply) text(at int) string {
	if at >= len(r.body) {
		return ""
	}
	text, _ := r.body[at].(string)
	return text
}

// texts is an element of the body that is a list of texts.
func (r *reply) texts(at int) ([]string, bool) {
	if at >= len(r.body) {
		return nil, false
	}
	return textsOf(r.body[at])
}

func textsOf(value any) ([]string, bool) {
	list, ok := value.([]any)
	texts := make([]string, len(list))
	for at, one := range list {
		text, isText := one.(string)
		texts[at], ok = text, ok && isText
	}
	return texts, ok
}

// granted is a message that a claim granted.
type granted struct {
	id            string
	payload       string
	dueMs         int64
	attempt       int64
	crashes       int64
	isLastAttempt bool
	traceParent   string
	expiresAtMs   *int64
	cost          int64
	snoozes       int64
	isTick        bool
}

// readClaim returns the number of ready messages that the claim left, and what it granted.
func readClaim(r *reply) (int64, []granted, error) {
	ids, ok := r.texts(2)
	payloads, ok2 := r.texts(3)
	details, ok3 := r.texts(4)
	if !ok || !ok2 || !ok3 || len(payloads) != len(ids) || len(details) != len(ids) && len(details) != 1 {
		return 0, nil, unexpected("claim", r.body)
	}
	all := make([]granted, len(ids))
	for at, id := range ids {
		detail := details[min(at, len(details)-1)]
		one, ok := readDetail(detail, r.number(5))
		if !ok {
			return 0, nil, unexpected("claim", r.body)
		}
		one.id, one.payload = id, payloads[at]
		all[at] = one
	}
	return r.number(0), all, nil
}

func readDetail(detail string, queueLimit int64) (granted, bool) {
	due, rest, _ := strings.Cut(detail, " ")
	attempt, options, _ := strings.Cut(rest, " ")
	one := granted{cost: 1}
	var err, err2 error
	one.dueMs, err = strconv.ParseInt(due, 10, 64)
	one.attempt, err2 = strconv.ParseInt(attempt, 10, 64)
	limit := queueLimit
	if options != "" { // most messages have none
		words := wordsOf(options)
		one.crashes = numberOf(words, "crashes", 0)
		one.cost = numberOf(words, "cost", 1)
		one.snoozes = numberOf(words, "snoozes", 0)
		_, one.isTick = words["tick"]
		one.expiresAtMs = expiryOf(words, one.dueMs)
		limit = numberOf(words, "max_attempts", queueLimit)
		// Handlers copy it into HTTP headers, so a malformed one is left out.
		if parent := words["traceparent"]; isTraceParent(parent) {
			one.traceParent = parent
		}
	}
	one.isLastAttempt = 0 < limit && limit <= max(one.attempt-1-one.crashes, 0)+1
	return one, err == nil && err2 == nil
}

func wordsOf(options string) map[string]string {
	words := map[string]string{}
	for _, word := range strings.Split(options, " ") {
		name, value, _ := strings.Cut(word, "=")
		words[name] = value
	}
	return words
}

func numberOf(words map[string]string, name string, otherwise int64) int64 {
	if number := decimal(words[name]); number != nil {
		return *number
	}
	return otherwise
}

func decimal(text string) *int64 {
	number, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return nil
	}
	signed := int64(number)
	return &signed
}

func expiryOf(words map[string]string, dueMs int64) *int64 {
	if by := numberOf(words, "expires_by", 0); by != 0 {
		return &by
	}
	expires, isAfter := strings.CutPrefix(words["expires"], "+")
	at := decimal(expires)
	if at != nil && isAfter {
		*at += dueMs
	}
	return at
}

// readGet returns the message, or how it ended; nil if the queue knows neither.
func readGet(r *reply, id string) (*StoredMessage, *MessageEnd, error) {
	wrong := func() (*StoredMessage, *MessageEnd, error) { return nil, nil, unexpected("get", r.body) }
	if len(r.body) == 0 {
		return wrong()
	}
	pairs, ok := r.body[0].([]any)
	if !ok || len(pairs)%2 != 0 {
		return wrong()
	}
	if len(pairs) == 0 {
		if len(r.body) == 1 {
			return nil, nil, nil
		}
		end := MessageEnd{Kind: EndKind(r.text(1)), EndedAt: time.UnixMilli(r.number(2))}
		if until := r.number(3); until != 0 {
			end.RememberedUntil = time.UnixMilli(until)
		}
		if end.Kind != EndFinished && end.Kind != EndExpired && end.Kind != EndCancelled {
			return wrong()
		}
		return nil, &end, nil
	}
	fields := map[string]any{}
	for at := 0; at < len(pairs); at += 2 {
		name, _ := pairs[at].(string)
		fields[name] = pairs[at+1]
	}
	number := func(name string) int64 { value, is := fields[name].(int64); ok = ok && is; return value }
	text := func(name string) string { value, is := fields[name].(string); ok = ok && is; return value }
	words := wordsOf(text("options"))
	found := StoredMessage{
		ID:          id,
		State:       MessageState(text("state")),
		Time:        time.UnixMilli(number("time_ms")),
		Failures:    int(number("failures")),
		Crashes:     int(number("crashes")),
		MaxAttempts: int(numberOf(words, "max_attempts", 0)),
		Cost:        int(numberOf(words, "cost", 1)),
		Error:       text("error"),
		Payload:     []byte(text("payload")),
	}
	if _, has := fields["next_due"]; has {
		found.NextDue = time.UnixMilli(number("next_due"))
	}
	if !ok || !isState(found.State) {
		return wrong()
	}
	return &found, nil, nil
}

func isState(state MessageState) bool {
	return state == Scheduled || state == Ready || state == Leased || state == Dead
}

// result is a decoded item result: its outcome, and its time or state if it has one.
type result struct {
	outcome Outcome
	ms      *int64
	state   MessageState
}

// resultWords by verb: each word with its outcome. A word that ends with a colon has a time behind it.
var resultWords = func() map[string]map[string]Outcome {
	push := map[string]Outcome{
		"CREATED": Created, "EXISTS": Exists, "MOVED": Moved, "NEXT": FollowsNext, "REMEMBERED:": Remembered,
		"FINISHED": Finished, "USED": Finished,
	}
	ack := map[string]Outcome{"OK": settledDone, "GONE": settledGone, "LOST": settledLost}
	retry := map[string]Outcome{
		"SCHEDULED:": settledAt, "DEAD": IsDead, "DROPPED": settledDrop, "GONE": settledGone, "LOST": settledLost,
	}
	extend := map[string]Outcome{"OK:": settledUntil, "GONE": settledGone, "LOST": settledLost}
	return map[string]map[string]Outcome{
		"push": push, "upsert": push, "ack_push": push,
		"cancel":     {"CANCELLED": Cancelled, "LEASED": IsLeased, "DEAD": IsDead, "ABSENT": IsAbsent},
		"reschedule": {"MOVED:": Moved, "CONFLICT:": DueConflict, "LEASED": IsLeased, "DEAD": IsDead, "ABSENT": IsAbsent},
		"run_now":    {"MOVED": Moved, "ALREADY": DueAlready, "LEASED": IsLeased, "DEAD": IsDead, "ABSENT": IsAbsent},
		"ack":        ack, "again": ack, "release": ack, "bury": ack,
		"retry": retry, "snooze": retry,
		"throttle": extend, "extend": extend,
	}
}()

// readResult decodes the result of one item, such as `EXISTS scheduled`. An item that was refused is an error.
func readResult(verb, text string) (result, error) {
	word, detail, _ := strings.Cut(text, " ")
	if outcome, ok := resultWords[verb][word+":"]; ok {
		ms := decimal(detail)
		if ms == nil {
			return result{}, unexpected(verb, text)
		}
		return result{outcome: outcome, ms: ms}, nil
	}
	outcome, ok := resultWords[verb][word]
	switch {
	case !ok:
		return result{}, refusalOf(verb, word, detail)
	case outcome == Exists && !isState(MessageState(detail)):
		return result{}, unexpected(verb, text)
	case outcome == Exists:
		return result{outcome: outcome, state: MessageState(detail)}, nil
	case word == "CANCELLED" && detail == "next":
		return result{outcome: FollowsNext}, nil
	}
	return result{outcome: outcome}, nil
}

func refusalOf(verb, word, detail string) error {
	switch word {
	case "INVALID":
		if strings.HasPrefix(detail, "payload has ") {
			return tooLarge(detail)
		}
		return invalid("%s", detail)
	case "FULL":
		what := "work it off"
		if strings.HasPrefix(detail, "this queue may remember") {
			what = "push with shorter windows"
		}
		text := "FULL: " + detail + "; " + what + ", or raise the limit: dueq configure QUEUE"
		return &Error{Kind: KindFull, Applied: AppliedNo, Text: text}
	}
	return unexpected(verb, word+" "+detail)
}

// verdict says what becomes of the result of a push.
type verdict string

const (
	isFinal   verdict = "final"
	sendAgain verdict = "again" // as a new call
	isUnknown verdict = "unknown"
)

func verdictOf(text string, repeated bool, latestStartUs int64) verdict {
	word, detail, _ := strings.Cut(text, " ")
	switch {
	case word != "FINISHED" && word != "EXPIRED":
		return isFinal
	case !repeated:
		// The estimate of the server's clock was wrong, or another client changed a message of this id meanwhile.
		return sendAgain
	case word == "EXPIRED":
		return isUnknown
	}
	whole, fraction, hasDot := strings.Cut(detail, ".")
	ms, us := decimal(whole), decimal(fraction)
	if hasDot && ms != nil && us != nil && *ms*1_000+*us <= latestStartUs {
		return isUnknown
	}
	return isFinal
}
