// Package dueq is a producer and a consumer of dueq, a distributed delay queue on Redis.
// A message reaches one live worker when it is due, to the millisecond. It survives crashes of workers and of Redis.
package dueq

import (
	"cmp"
	"context"
	"crypto/tls"
	"strings"
	"sync"
	"time"
)

// Version of this module.
const Version = "0.1.0"

// Client is a connection to the servers of a URL, for any number of goroutines. Made by [Connect].
type Client struct {
	servers *servers

	mu      sync.Mutex
	routers map[string]*router
	closed  bool
}

// ClientOption is an option of [Connect].
type ClientOption func(*clientOptions)

type clientOptions struct{ tls *tls.Config }

// TLS gives the certificates of a `rediss://` URL; without it those of the system count.
func TLS(config *tls.Config) ClientOption { return func(o *clientOptions) { o.tls = config } }

// Connect makes a client of `redis://`, `rediss://`, `unix://`, `redis+cluster://HOST:PORT,...` or
// `redis+sentinel://HOST:PORT,.../SERVICE[/DATABASE]`. Nothing is sent before the first call.
// If the server of a `redis://` URL belongs to a cluster, the client uses all masters of that cluster.
func Connect(url string, options ...ClientOption) (*Client, error) {
	var given clientOptions
	for _, option := range options {
		option(&given)
	}
	servers, err := serversOf(url, given.tls)
	if err != nil {
		return nil, err
	}
	return &Client{servers: servers, routers: map[string]*router{}}, nil
}

// Queue is the queue of this name: 1 to 128 bytes, no control characters and none of `/ { }`.
// With another name each call of the queue fails.
func (c *Client) Queue(name string) *Queue {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.routers[name]
	if found == nil {
		made, err := newRouter(c.servers, name)
		if err != nil {
			return &Queue{client: c, router: made, err: err}
		}
		found = made
		c.routers[name] = found
	}
	return &Queue{client: c, router: found}
}

// Close waits for the calls that are under way, and closes the connections. Stop the workers before.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	var routers []*router
	for _, one := range c.routers {
		routers = append(routers, one)
	}
	c.mu.Unlock()
	for _, one := range routers {
		one.drain()
	}
	c.servers.close()
	return nil
}

// Queue is one queue. A call that fails returns an [Error]; what may be expected is an [Outcome].
type Queue struct {
	client     *Client
	router     *router
	durability Durability
	err        error // of a bad name or durability
}

// Durability is this queue with calls that wait until replicas or disks have confirmed them.
func (q *Queue) Durability(d Durability) *Queue {
	return &Queue{q.client, q.router, d, cmp.Or(q.err, d.check())}
}

// Name of the queue.
func (q *Queue) Name() string { return q.router.queue }

func (q *Queue) check() error {
	q.client.mu.Lock()
	defer q.client.mu.Unlock()
	if q.client.closed {
		return invalid("the client is closed: make a new one")
	}
	return q.err
}

// Push stores a message. Without [Delay] and [Due] it is due at once.
// Pushes that are made while a call is under way share the next call.
func (q *Queue) Push(ctx context.Context, payload []byte, options ...Option) (Receipt, error) {
	return q.push(ctx, NewMessage(payload, options...))
}

func (q *Queue) push(ctx context.Context, message Message) (Receipt, error) {
	if err := q.check(); err != nil {
		return Receipt{}, err
	}
	if message.err != nil {
		return Receipt{}, message.err
	}
	found, err := q.router.item(ctx, q.durability, message.verb(), message.id, message.repeatable, message.arguments()...)
	return receiptOf(message, found, err)
}

// PushMany stores many messages in few calls. Each has a receipt or an error of its own, in their order.
func (q *Queue) PushMany(ctx context.Context, messages []Message) []PushResult {
	results := make([]PushResult, len(messages))
	err := q.check()
	var good []Message
	var places []int
	for at, message := range messages {
		switch {
		case err != nil:
			results[at].Err = err
		case message.id == "" && message.err == nil:
			results[at].Err = invalid("a message is made by NewMessage")
		case message.err != nil:
			results[at].Err = message.err
		default:
			good, places = append(good, message), append(places, at)
		}
	}
	if len(good) == 0 {
		return results
	}
	answers, errs := q.router.messages(ctx, q.durability, good)
	for at, place := range places {
		results[place].Receipt, results[place].Err = receiptOf(good[at], answers[at], errs[at])
	}
	return results
}

// Cancel removes a message that waits. Repeated, it is Cancelled for 12 s.
// FollowsNext: a handler has the message, and the message that should follow it is gone.
func (q *Queue) Cancel(ctx context.Context, id string) (Outcome, error) {
	found, err := q.item(ctx, "cancel", id, true)
	return found.outcome, err
}

// CancelDead removes a message that waits or is dead.
func (q *Queue) CancelDead(ctx context.Context, id string) (Outcome, error) {
	found, err := q.item(ctx, "cancel_dead", id, true)
	return found.outcome, err
}

// Reschedule moves a message that waits.
func (q *Queue) Reschedule(ctx context.Context, id string, when When) (Rescheduled, error) {
	return q.reschedule(ctx, id, when, "")
}

// RescheduleFrom moves a message that waits, if it is due at the expected time. With a [Due] it may be repeated, so
// a lost reply is no error.
func (q *Queue) RescheduleFrom(ctx context.Context, id string, expected time.Time, when When) (Rescheduled, error) {
	before, err := Due(expected).word()
	if err != nil {
		return Rescheduled{}, err
	}
	return q.reschedule(ctx, id, when, before)
}

func (q *Queue) reschedule(ctx context.Context, id string, when When, expected string) (Rescheduled, error) {
	due, err := when.word()
	if err != nil {
		return Rescheduled{}, err
	}
	// A repeated delay would count from the repetition.
	found, err := q.item(ctx, "reschedule", id, due[0] != '+' && expected != "", due, expected)
	return Rescheduled{found.outcome, moment(found.ms)}, err
}

// RunNow makes a message that waits due now.
func (q *Queue) RunNow(ctx context.Context, id string) (Outcome, error) {
	found, err := q.item(ctx, "run_now", id, false)
	return found.outcome, err
}

// Get is the message, whatever its state; nil if the queue has none of this id.
func (q *Queue) Get(ctx context.Context, id string) (*StoredMessage, error) {
	stored, _, err := q.known(ctx, id)
	return stored, err
}

// EndOf is how the message ended, if a window remembers it, or if it was cancelled in the last 12 s; otherwise nil.
func (q *Queue) EndOf(ctx context.Context, id string) (*MessageEnd, error) {
	_, end, err := q.known(ctx, id)
	return end, err
}

func (q *Queue) known(ctx context.Context, id string) (*StoredMessage, *MessageEnd, error) {
	if err := q.check(); err != nil {
		return nil, nil, err
	}
	if err := checkID(id); err != nil {
		return nil, nil, err
	}
	return q.router.get(ctx, id)
}

func (q *Queue) item(ctx context.Context, verb, id string, repeatable bool, more ...any) (result, error) {
	if err := q.check(); err != nil {
		return result{}, err
	}
	if err := checkID(id); err != nil {
		return result{}, err
	}
	found, err := q.router.item(ctx, q.durability, verb, id, repeatable, append([]any{id}, more...)...)
	if err != nil {
		return result{}, asError(err).ofMessage(id)
	}
	return decoded(strings.TrimSuffix(verb, "_dead"), found)
}

func decoded(verb string, found answer) (result, error) {
	read, err := readResult(verb, found.text)
	if err != nil && found.repeated {
		// The limits of the queue may have changed since an earlier try, which may have been applied.
		err = asError(err).ofRepeated()
	}
	return read, err
}

func receiptOf(message Message, found answer, err error) (Receipt, error) {
	var read result
	if err == nil {
		read, err = decoded(message.verb(), found)
	}
	if err != nil {
		return Receipt{}, asError(err).ofMessage(message.id)
	}
	return Receipt{message.id, read.outcome, read.state, moment(read.ms)}, nil
}
