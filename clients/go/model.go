package dueq

import "time"

const maxMomentMs = 1_000_000_000_000_000

// MessageState is where a message is in its life.
type MessageState string

// The states of a message.
const (
	Scheduled MessageState = "scheduled"
	Ready     MessageState = "ready"
	Leased    MessageState = "leased"
	Dead      MessageState = "dead"
)

// Conflict is what a push does if its id waits already.
type Conflict string

// The ways to solve a conflict.
const (
	// Keep: the push changes nothing.
	Keep Conflict = "keep"
	// Reschedule: the message gets the due time of the push.
	Reschedule Conflict = "reschedule"
	// Replace: the message gets the due time, the payload and the options of the push.
	Replace Conflict = "replace"
	// Next is as Replace; of a message that a handler has, the new one follows its delivery.
	Next Conflict = "next"
)

// Expiry is what becomes of a message that expires.
type Expiry string

// The ends of a message that expires.
const (
	ExpireDead Expiry = "dead"
	ExpireDrop Expiry = "drop"
)

// Outcome is what a call found or did: the words of the protocol in lower case.
type Outcome string

// The outcomes of calls. Exists: the id is in the queue, and nothing was changed; a repeated push has this outcome.
// Remembered: a window remembers the id, and nothing was stored. Finished: an earlier try of this call was applied,
// and the message has ended since. IsLeased, IsDead and IsAbsent: it was too late.
const (
	Created      Outcome = "created"
	Exists       Outcome = "exists"
	Moved        Outcome = "moved"
	FollowsNext  Outcome = "next"
	Remembered   Outcome = "remembered"
	Finished     Outcome = "finished"
	Cancelled    Outcome = "cancelled"
	IsLeased     Outcome = "leased"
	IsDead       Outcome = "dead"
	IsAbsent     Outcome = "absent"
	DueConflict  Outcome = "conflict"
	DueAlready   Outcome = "already"
	settledDone  Outcome = "done"
	settledUntil Outcome = "until"
	settledAt    Outcome = "scheduled"
	settledDrop  Outcome = "dropped"
	settledGone  Outcome = "gone"
	settledLost  Outcome = "lost"
)

// EndKind is how a message ended.
type EndKind string

// The ends of a message.
const (
	EndFinished  EndKind = "finished"
	EndExpired   EndKind = "expired"
	EndCancelled EndKind = "cancelled"
)

// Receipt is what a push did.
type Receipt struct {
	ID      string
	Outcome Outcome
	State   MessageState // with Exists: the state of the message that has the id
	Until   time.Time    // with Remembered: the end of the window
}

// Created holds if the push stored a new message.
func (r Receipt) Created() bool { return r.Outcome == Created }

// PushResult is what became of one message of [Queue.PushMany].
type PushResult struct {
	Receipt
	Err error
}

// Rescheduled is what a reschedule did, and when the message is due now.
type Rescheduled struct {
	Outcome Outcome
	Due     time.Time
}

// StoredMessage is a message as the queue has it.
type StoredMessage struct {
	ID    string
	State MessageState
	// Time at which it is due; of a leased message when its lease ends; of a dead one when it died.
	Time        time.Time
	Failures    int
	Crashes     int
	MaxAttempts int // 0: the queue's own limit
	Cost        int
	Error       string
	Payload     []byte
	NextDue     time.Time // of the message that follows a leased one, if there is one
}

// MessageEnd is how the message of a remembered id ended.
type MessageEnd struct {
	Kind            EndKind
	EndedAt         time.Time
	RememberedUntil time.Time // zero without a window
}

// milliseconds rounds up, so that nothing is early.
func milliseconds(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d > time.Duration(ms)*time.Millisecond {
		ms++
	}
	return ms
}

func unixMs(moment time.Time) (int64, error) {
	ms := moment.UnixMilli()
	if moment.After(time.UnixMilli(ms)) {
		ms++
	}
	if ms < 0 || ms >= maxMomentMs {
		return 0, invalid("a moment is from 1970 to the year 33000, not %s", moment)
	}
	return ms, nil
}

// moment of Unix milliseconds; zero for none.
func moment(ms *int64) time.Time {
	if ms == nil {
		return time.Time{}
	}
	return time.UnixMilli(*ms)
}
