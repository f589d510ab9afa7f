package dueq

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// ErrorKind says what went wrong. It is an error itself, for errors.Is(err, dueq.KindFull).
type ErrorKind string

const (
	// KindInvalidInput: a name, id, time or option is out of its range, or the client is used wrongly.
	KindInvalidInput ErrorKind = "invalid_input"
	// KindUnavailable: the server cannot be reached, or does not serve calls now.
	KindUnavailable ErrorKind = "unavailable"
	// KindTimeout: no reply came in time, or the caller stopped waiting.
	KindTimeout ErrorKind = "timeout"
	// KindUnconfirmed: the master has made the change, and too few replicas or disks have confirmed it.
	KindUnconfirmed ErrorKind = "unconfirmed"
	// KindFull: the queue's limit of messages, or the server's memory, is reached.
	KindFull ErrorKind = "full"
	// KindDenied: the user or password is wrong, or the user lacks a right.
	KindDenied ErrorKind = "denied"
	// KindUnsupported: the server is too old or may evict keys, or the queue has an unknown layout.
	KindUnsupported ErrorKind = "unsupported"
	// KindServer: the server replied with another error, or with something that is not the protocol.
	KindServer ErrorKind = "server"
	// KindInternal: a defect of this library.
	KindInternal ErrorKind = "internal"
)

func (k ErrorKind) Error() string { return "dueq: " + strings.ReplaceAll(string(k), "_", " ") }

// Applied says whether a failed call took effect.
type Applied string

const (
	// AppliedNo: nothing was changed.
	AppliedNo Applied = "no"
	// AppliedYes: the change was made.
	AppliedYes Applied = "yes"
	// AppliedUnknown: the reply was lost. [Queue.Get] shows what the queue has; or repeat the call if that is harmless.
	AppliedUnknown Applied = "unknown"
)

// Error is the error of any call: what failed, and whether the call took effect.
type Error struct {
	Kind    ErrorKind
	Applied Applied
	// Code of the server's error, such as NOPERM, or TOO_LARGE for a payload above the limit.
	Code string
	// ID of the message, if it may have been stored.
	ID string
	// Text says what failed and what to do.
	Text string

	detail string // what the server said after the code
	cause  error
}

func (e *Error) Error() string { return "dueq: " + e.Text }

// Unwrap returns the error of the Redis client or of the context, if there is one.
func (e *Error) Unwrap() error { return e.cause }

// Is holds for an [ErrorKind].
func (e *Error) Is(target error) bool {
	kind, ok := target.(ErrorKind)
	return ok && kind == e.Kind
}

// Retryable says whether the same call may succeed later. Applied says whether repeating it is harmless.
func (e *Error) Retryable() bool {
	return e.isOutage() || e.Kind == KindUnconfirmed || e.Kind == KindFull
}

// isRemapped holds if the partition has another map than the caller.
func (e *Error) isRemapped() bool { return e.Code == "REMAPPED" || e.Code == "BEHIND" }

// isOutage holds for what passes without the caller's doing.
func (e *Error) isOutage() bool { return e.Kind == KindUnavailable || e.Kind == KindTimeout }

func (e *Error) with(applied Applied) *Error {
	copied := *e
	copied.Applied = applied
	return &copied
}

// ofRepeated is this error as that of a call whose earlier try may have been applied.
func (e *Error) ofRepeated() *Error {
	if e.Applied == AppliedUnknown {
		return e
	}
	copied := e.with(AppliedUnknown)
	copied.Text += " (an earlier try may have taken effect)"
	return copied
}

// ofMessage is a copy for the caller of one message, with its id unless the call was not applied.
func (e *Error) ofMessage(id string) *Error {
	copied := *e
	if e.Applied == AppliedNo {
		id = ""
	}
	copied.ID = id
	return &copied
}

// asError returns any error as the one type.
func asError(err error) *Error {
	var known *Error
	if errors.As(err, &known) {
		return known
	}
	return &Error{Kind: KindInternal, Applied: AppliedUnknown, Text: "a defect of this library: " + err.Error(), cause: err}
}

func invalid(format string, values ...any) *Error {
	return &Error{Kind: KindInvalidInput, Applied: AppliedNo, Text: fmt.Sprintf(format, values...)}
}

func tooLarge(text string) *Error {
	return &Error{Kind: KindInvalidInput, Applied: AppliedNo, Text: text, Code: "TOO_LARGE"}
}

func unavailable(format string, values ...any) *Error {
	return &Error{Kind: KindUnavailable, Applied: AppliedNo, Text: fmt.Sprintf(format, values...)}
}

func unexpected(verb string, what any) *Error {
	text := fmt.Sprintf("the reply to %s is not the protocol: %.200q (`dueq doctor QUEUE` finds why)", verb, fmt.Sprint(what))
	return &Error{Kind: KindServer, Applied: AppliedUnknown, Text: text}
}

// abandoned is the error of a caller whose context has ended.
func abandoned(ctx context.Context, applied Applied) *Error {
	cause := context.Cause(ctx)
	return &Error{Kind: KindTimeout, Applied: applied, Text: "the caller stopped waiting: " + cause.Error(), cause: ctx.Err()}
}

var kinds = map[string]ErrorKind{
	"LOADING": KindUnavailable, "BUSY": KindUnavailable, "MASTERDOWN": KindUnavailable,
	"CLUSTERDOWN": KindUnavailable, "TRYAGAIN": KindUnavailable, "READONLY": KindUnavailable, "ASK": KindUnavailable,
	"MISCONF": KindUnavailable, "NOREPLICAS": KindUnavailable, "NOSCRIPT": KindUnavailable,
	"REMAPPED": KindUnavailable, "BEHIND": KindUnavailable,
	"MOVED": KindUnsupported, "LAYOUT": KindUnsupported,
	"OOM":    KindFull,
	"NOAUTH": KindDenied, "WRONGPASS": KindDenied, "NOPERM": KindDenied,
	"BADARGS": KindInvalidInput, "HELD": KindInvalidInput,
}

var hints = map[string]string{
	"OOM":         "its memory is full: raise maxmemory; workers drain it meanwhile",
	"NOAUTH":      "give user and password in the URL: redis://USER:PASSWORD@HOST/",
	"WRONGPASS":   "give user and password in the URL: redis://USER:PASSWORD@HOST/",
	"MISCONF":     "it cannot persist: look at its log and disk",
	"WRONGTYPE":   "another program uses a key of this queue: `dueq doctor QUEUE` names it",
	"READONLY":    "it is a replica: redis-cli ROLE names its master",
	"CLUSTERDOWN": "it reaches no majority of masters, or slots are served by none: redis-cli CLUSTER NODES",
	"NOREPLICAS":  "too few replicas follow it: redis-cli INFO replication",
	"BUSY":        "a script runs for long: redis-cli SCRIPT KILL, or FUNCTION KILL, ends it",
	"MOVED":       "the queue is on another node of this cluster: connect with redis+cluster://",
	"LAYOUT":      "install a newer version of this module",
	"NOPERM":      "give the user the rights that `dueq acl ROLE QUEUE` lists",
}

// errorOfReply is the error for an error reply such as `LAYOUT this queue has layout 5`.
func errorOfReply(address, text string) *Error {
	code, detail, _ := strings.Cut(text, " ")
	// Redis does not roll back a script that fails, and names the script in the text.
	inScript := strings.Contains(detail, "script: ")
	lacksRight := code == "NOPERM" || code == "ERR" && (strings.HasPrefix(detail, "The user executing the script ") ||
		strings.HasPrefix(detail, "ACL failure in script: "))
	e := &Error{Applied: AppliedNo, Code: code, detail: detail}
	hint, known := hints[code], false
	e.Kind, known = kinds[code]
	switch {
	case inScript && lacksRight:
		e.Kind, e.Applied, hint = KindDenied, AppliedUnknown, hints["NOPERM"]
	case code == "UNBLOCKED": // the server became a replica while the call was blocked
		e.Kind, e.Applied = KindUnavailable, AppliedUnknown
	case code == "ERR" && strings.HasPrefix(detail, "max number of clients"):
		e.Kind = KindUnavailable
	case !known:
		e.Kind = KindServer
		// Scripts read each key before they write, so these come before the first write.
		isBeforeWrites := code == "BADKEYS" || code == "BADNOW" || code == "WRONGTYPE"
		if inScript && !isBeforeWrites {
			e.Applied = AppliedUnknown
		}
	}
	did := "refused"
	if e.Applied != AppliedNo {
		did = "stopped halfway"
	}
	e.Text = fmt.Sprintf("redis at %s %s: %s", address, did, text)
	if hint != "" {
		e.Text += " (" + hint + ")"
	}
	return e
}
