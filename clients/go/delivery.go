package dueq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// The causes for which the context of a handler ends, see [context.Cause].
var (
	// ErrLeaseLost: the message is or will be delivered again, so the handler should stop.
	ErrLeaseLost = errors.New("dueq: the lease of the delivery was lost")
	// ErrStopped: the worker stops, and its grace has passed. What the handler has not ended is released.
	ErrStopped = errors.New("dueq: the worker has stopped")
)

// Handler handles one delivery. Nil is an ack, a [Settlement] is what it says, and any other error or a panic is a
// retry after a growing delay. Middleware is a function from Handler to Handler.
type Handler func(ctx context.Context, delivery *Delivery) error

// Delivery is one message in the hands of a handler, under a lease that the worker extends.
type Delivery struct {
	Queue   string
	ID      string
	Payload []byte
	// Attempt is the number of failures and crashes before this delivery, plus one.
	Attempt int
	// Crashes is how many leases of the message ran out before.
	Crashes int
	// IsLastAttempt holds if a failure of this attempt makes the message dead.
	IsLastAttempt bool
	Due           time.Time // by the server's clock
	ExpiresAt     time.Time // zero for never; no attempt starts after this time
	TraceParent   string
	Snoozes       int
	Cost          int
	Tick          *Tick // the fire that the message stands for, if a schedule has made it

	token string
	lost  atomic.Bool
}

func newDelivery(queue, token string, one granted) *Delivery {
	return &Delivery{
		Queue: queue, ID: one.id, Payload: []byte(one.payload), Attempt: int(one.attempt), Crashes: int(one.crashes),
		IsLastAttempt: one.isLastAttempt, Due: time.UnixMilli(one.dueMs), ExpiresAt: moment(one.expiresAtMs),
		TraceParent: one.traceParent, Snoozes: int(one.snoozes), Cost: int(one.cost), Tick: tickOf(one), token: token,
	}
}

// JSON reads the payload into a value.
func (d *Delivery) JSON(value any) error { return json.Unmarshal(d.Payload, value) }

// IsLost says whether the lease was lost. The context of the handler has ended then, with [ErrLeaseLost] as its cause.
func (d *Delivery) IsLost() bool { return d.lost.Load() }

// Settlement is how a delivery is settled. It is an error, so that a handler can return it, also wrapped.
type Settlement struct {
	verb     string
	when     When
	wait     *time.Duration
	text     string
	messages []Message
}

func (s Settlement) Error() string { return fmt.Sprintf("dueq: settled by %s %s", s.verb, s.text) }

// Ack: done, and the message is removed. It is the same as nil.
func Ack() Settlement { return Settlement{verb: "ack"} }

// AckAnd: done, and in the same step these messages are stored, 1 to 100. Those without an id are named after it.
func AckAnd(messages ...Message) Settlement { return Settlement{verb: "ack_push", messages: messages} }

// Again: done for this time. The message is due again then, with its attempts reset.
func Again(when When) Settlement { return Settlement{verb: "again", when: when} }

// RetryAfter: failed. The message is due again after this delay, or dead at the limit of attempts.
func RetryAfter(err error, delay time.Duration) Settlement {
	delay = min(max(delay, 0), maxDelayMs*time.Millisecond)
	return Settlement{verb: "retry", wait: &delay, text: fmt.Sprint(err)}
}

// Release: given back. The message is due at once, and no attempt counts.
func Release() Settlement { return Settlement{verb: "release"} }

// Bury: failed for good. The message is dead at once, for this reason.
func Bury(reason string) Settlement { return Settlement{verb: "bury", text: reason} }

// Snooze: too early. The message is due again then, and no attempt counts.
func Snooze(when When) Settlement { return Settlement{verb: "snooze", when: when} }

// Throttle: the receiver wants a break. The message is given back, and no message of the queue starts for so long.
func Throttle(wait time.Duration) Settlement { return Settlement{verb: "throttle", wait: &wait} }

// word is the time of the settlement as the script reads it.
func (s Settlement) word() (string, error) {
	if s.wait == nil {
		return s.when.word()
	}
	ms := milliseconds(*s.wait)
	if ms < 0 || ms > maxDelayMs {
		return "", invalid("%s by %s: it must be 0 to 100 years", s.verb, *s.wait)
	}
	return fmt.Sprint(ms), nil
}

// Retry is the delay after a failed attempt; 1 is the first. It does not limit the number of attempts: the message or
// its queue does.
type Retry func(attempt int) time.Duration

// Exponential doubles the delay from `first` up to `most`, less a random part of up to half of it.
func Exponential(first, most time.Duration) Retry {
	return func(attempt int) time.Duration {
		full := first
		for range attempt - 1 {
			if full >= most/2 {
				full = most
				break
			}
			full *= 2
		}
		return time.Duration(float64(min(full, most)) * (1 - rand.Float64()/2))
	}
}

// Fixed is one delay for all retries.
func Fixed(delay time.Duration) Retry { return func(int) time.Duration { return delay } }
