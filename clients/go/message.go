package dueq

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"regexp"
	"strings"
	"sync/atomic"
	"time"
)

const (
	maxDelayMs      = 3_155_760_000_000 // 100 years
	maxWindowMs     = 2_592_000_000     // 30 days
	maxPayloadBytes = 16 << 20
)

var traceParentForm = regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// Option is an option of a message.
type Option interface{ apply(*draft) }

type optionFunc func(*draft)

func (f optionFunc) apply(d *draft) { f(d) }

// When is a due time, made by [Delay] or [Due]. It is an option of a message, too.
type When struct {
	delay time.Duration
	due   time.Time
}

func (w When) apply(d *draft) { d.whens = append(d.whens, w) }

// word is the due time as the scripts read it: `+MS` or Unix milliseconds.
func (w When) word() (string, error) {
	if !w.due.IsZero() {
		ms, err := unixMs(w.due)
		return fmt.Sprint(ms), err
	}
	ms := milliseconds(w.delay)
	if ms < 0 || ms > maxDelayMs {
		return "", invalid("the delay is %d ms, it must be 0 to %d (100 years)", ms, int64(maxDelayMs))
	}
	return fmt.Sprintf("+%d", ms), nil
}

// Delay makes a message due this long after the server has it.
func Delay(delay time.Duration) When { return When{delay: delay} }

// Due makes a message due at this moment, by the server's clock.
func Due(moment time.Time) When { return When{due: moment} }

// ID names the message, by 1 to 200 bytes without control bytes. Without one the library makes one.
func ID(id string) Option { return optionFunc(func(d *draft) { d.id = &id }) }

// Spread makes the message due up to this much later, by its id: for many messages of one due time.
func Spread(window time.Duration) Option { return optionFunc(func(d *draft) { d.spread = &window }) }

// MaxAttempts says after how many failed attempts the message is dead. Without it the queue's limit counts, which is
// 20 by default.
func MaxAttempts(number int) Option { return word("max_attempts", int64(number), 1_000_000) }

// OnConflict says what the push does if a message of this id waits already; Keep without it.
func OnConflict(conflict Conflict) Option {
	return optionFunc(func(d *draft) { d.conflict = conflict })
}

// TraceParent is the W3C traceparent of the push, which the handler gets.
func TraceParent(parent string) Option {
	return optionFunc(func(d *draft) {
		if !isTraceParent(parent) {
			d.refuse(invalid("trace_parent is not a W3C traceparent of version 00"))
		}
		d.words["traceparent"] = parent
	})
}

// ExpiresAfter: no attempt starts later than this after the due time.
func ExpiresAfter(after time.Duration) Option {
	return optionFunc(func(d *draft) {
		d.expiries++
		d.words["expires"] = fmt.Sprintf("+%d", d.within("expires_after in ms", milliseconds(after), maxDelayMs))
	})
}

// ExpiresAt: no attempt starts after this moment, by the server's clock.
func ExpiresAt(moment time.Time) Option {
	return optionFunc(func(d *draft) {
		ms, err := unixMs(moment)
		d.refuse(err)
		d.expiries++
		d.words["expires"] = fmt.Sprint(ms)
	})
}

// OnExpire says what becomes of a message that expires; ExpireDead without it.
func OnExpire(expiry Expiry) Option { return optionFunc(func(d *draft) { d.expiry = expiry }) }

// Cost is how much of the queue's rate each attempt uses; 1 without it.
func Cost(cost int) Option { return word("cost", int64(cost), 1_000_000) }

// Window: for this long from the push, no other push stores a message of this id; 30 days at most.
func Window(window time.Duration) Option { return word("window", milliseconds(window), maxWindowMs) }

// Reuse stores the message although the window of an earlier push remembers its id.
func Reuse() Option { return optionFunc(func(d *draft) { d.words["reuse"] = "" }) }

// MaxWait is how far later pushes of this id can postpone the message, from its first push on.
func MaxWait(wait time.Duration) Option { return word("max_wait", milliseconds(wait), maxDelayMs) }

// Revive replaces a dead message of this id too; with Replace or Next.
func Revive() Option { return optionFunc(func(d *draft) { d.words["revive"] = "" }) }

// UndoMs stores the message only if nothing happened to its id since a cancel at this server time, at most 12 s ago.
func UndoMs(ms int64) Option { return optionFunc(func(d *draft) { d.words["undo"] = fmt.Sprint(ms) }) }

func word(name string, value, most int64) Option {
	return optionFunc(func(d *draft) { d.words[name] = fmt.Sprint(d.within(name, value, most)) })
}

// draft gathers the options of a message.
type draft struct {
	id       *string
	whens    []When
	spread   *time.Duration
	conflict Conflict
	expiry   Expiry
	expiries int
	words    map[string]string
	err      error
}

func (d *draft) refuse(err error) {
	if d.err == nil {
		d.err = err
	}
}

func (d *draft) within(name string, value, most int64) int64 {
	if value < 1 || value > most {
		d.refuse(invalid("%s is %d, it must be a whole number from 1 to %d", name, value, most))
	}
	return value
}

// Message is a message to push. It is checked when it is made; a push reports what was wrong.
type Message struct {
	payload    []byte
	id         string
	due        string
	options    string
	conflict   Conflict
	repeatable bool
	given      []Option
	hasID      bool
	err        error
}

// NewMessage makes a message for [Queue.PushMany] and [AckAnd].
func NewMessage(payload []byte, options ...Option) Message {
	d := draft{conflict: Keep, expiry: ExpireDead, words: map[string]string{}}
	for _, option := range options {
		option.apply(&d)
	}
	m := Message{payload: payload, conflict: d.conflict, given: options, hasID: d.id != nil}
	// A repeated push with Next changes nothing if the first one was applied.
	m.repeatable = d.conflict == Keep || d.conflict == Next
	if d.id != nil {
		m.id = *d.id
	} else {
		m.id = newID()
	}
	d.refuse(checkID(m.id))
	if len(payload) > maxPayloadBytes {
		d.refuse(tooLarge(fmt.Sprintf("the payload has %d bytes, no queue takes more than %d", len(payload), maxPayloadBytes)))
	}
	m.due = d.due(m.id)
	m.options = d.text(m.due)
	m.err = d.err
	return m
}

// named is this message with this id, unless its producer has given it one.
func (m Message) named(id string) Message {
	if m.hasID {
		return m
	}
	return NewMessage(m.payload, append(m.given[:len(m.given):len(m.given)], ID(id))...)
}

func (m Message) arguments() []any { return []any{m.id, m.due, m.payload, m.options} }

// verb that stores the message.
func (m Message) verb() string {
	if m.conflict == Keep {
		return "push"
	}
	return "upsert"
}

// due is the due word. A spread adds a part that depends on the id alone, so that a repetition asks for the same time.
func (d *draft) due(id string) string {
	var when When
	switch len(d.whens) {
	case 0:
	case 1:
		when = d.whens[0]
	default:
		d.refuse(invalid("a message has a delay or a due time, not both"))
	}
	if d.spread != nil {
		later := int64(crc32.ChecksumIEEE([]byte("spread"+id))) % (milliseconds(max(*d.spread, 0)) + 1)
		if when.due.IsZero() {
			when.delay += time.Duration(later) * time.Millisecond
		} else {
			when.due = when.due.Add(time.Duration(later) * time.Millisecond)
		}
	}
	due, err := when.word()
	d.refuse(err)
	return due
}

// text is the options as the scripts read them, in the order of the Rust library.
func (d *draft) text(due string) string {
	switch d.conflict {
	case Keep, Reschedule, Replace, Next:
	default:
		d.refuse(invalid("on_conflict is %s, it must be one of keep, reschedule, replace, next", d.conflict))
	}
	_, revives := d.words["revive"]
	_, waits := d.words["max_wait"]
	switch {
	case d.expiries > 1:
		d.refuse(invalid("a message has expires_after or expires_at, not both"))
	case d.expiry == ExpireDrop && d.expiries == 0:
		d.refuse(invalid("on_expire is set and the message does not expire: set expires_after or expires_at too"))
	case revives && d.conflict != Replace && d.conflict != Next:
		d.refuse(invalid("revive needs on_conflict replace or next"))
	case waits && d.conflict == Keep:
		d.refuse(invalid("max_wait needs an on_conflict other than keep"))
	case waits && due != "" && due[0] == '+' && isLonger(due[1:], d.words["max_wait"]):
		d.refuse(invalid("the delay is longer than max_wait"))
	}
	if d.conflict != Keep {
		d.words["on_conflict"] = string(d.conflict)
	}
	if d.expiry == ExpireDrop {
		d.words["on_expire"] = "drop"
	}
	if d.words["cost"] == "1" { // the default is left out: a stored option takes memory
		delete(d.words, "cost")
	}
	var words []string
	for _, name := range []string{
		"max_attempts", "on_conflict", "traceparent", "expires", "on_expire", "cost", "window", "max_wait", "reuse", "revive", "undo",
	} {
		switch value, ok := d.words[name]; {
		case ok && value == "":
			words = append(words, name)
		case ok:
			words = append(words, name+"="+value)
		}
	}
	return strings.Join(words, " ")
}

// isLonger compares numbers without leading zeros.
func isLonger(a, b string) bool { return len(a) > len(b) || len(a) == len(b) && a > b }

func isTraceParent(text string) bool {
	return traceParentForm.MatchString(text) && text[3:35] != strings.Repeat("0", 32) && text[36:52] != strings.Repeat("0", 16)
}

func checkID(id string) error {
	if len(id) < 1 || len(id) > 200 || strings.ContainsFunc(id, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
		return invalid("message id %.40q of %d bytes: an id has 1 to 200 bytes, none of them a control byte", id, len(id))
	}
	return nil
}

// idForm keeps the order of what it encodes: the digits of base 64, in the order of their bytes.
var idForm = base64.NewEncoding("-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz").WithPadding(base64.NoPadding)

var newestID atomic.Int64

// newID is an id that no other message has: the time in ns, then random bits. What a process names later sorts later,
// so that the messages of one moment keep the order of their pushes.
func newID() string {
	now, last := time.Now().UnixNano(), newestID.Load()
	for !newestID.CompareAndSwap(last, max(now, last+1)) {
		last = newestID.Load()
	}
	made := binary.BigEndian.AppendUint64(nil, uint64(max(now, last+1)))
	return idForm.EncodeToString(append(made, random(8)...))
}

func random(bytes int) []byte {
	made := make([]byte, bytes)
	rand.Read(made) // never fails
	return made
}
