package dueq

import (
	"context"
	"encoding/hex"
	"log/slog"
	"slices"
	"sync"
	"time"
)

const longestLease = 24 * time.Hour

// Worker handles the messages of its queues, from [Worker.Run] to [Worker.Stop]. Made by [Client.Worker].
type Worker struct {
	client    *Client
	nodeID    string
	grace     time.Duration
	log       *slog.Logger
	consumers []*consumer
	err       error

	mu      sync.Mutex
	isBegun bool
	stop    chan struct{}
}

// WorkerOption is an option of [Client.Worker].
type WorkerOption func(*Worker)

// Grace is how long handlers may go on once the worker stops; 10 s without it. What they have not ended by then is
// released, and no attempt counts.
func Grace(grace time.Duration) WorkerOption { return func(w *Worker) { w.grace = grace } }

// Logger is where a worker reports; slog.Default() without it.
func Logger(log *slog.Logger) WorkerOption { return func(w *Worker) { w.log = log } }

// Worker is a new worker, which handles the messages of the queues that it is given.
func (c *Client) Worker(options ...WorkerOption) *Worker {
	w := &Worker{
		client: c, nodeID: hex.EncodeToString(random(8)), grace: 10 * time.Second, log: slog.Default(),
		stop: make(chan struct{}),
	}
	for _, option := range options {
		option(w)
	}
	return w
}

type queueSettings struct {
	concurrency      int
	lease, timeLimit time.Duration
	retry            Retry
}

// QueueOption is an option of [Worker.Queue].
type QueueOption func(*queueSettings)

// Concurrency is how many handlers of the queue run at a time; 16 without it.
func Concurrency(handlers int) QueueOption {
	return func(s *queueSettings) { s.concurrency = handlers }
}

// Lease is for how long a worker may be dead before its messages come back; 30 s without it. It is extended while a
// handler runs.
func Lease(lease time.Duration) QueueOption { return func(s *queueSettings) { s.lease = lease } }

// Backoff is the delay between attempts; from 1 s, doubling up to 1 h, without it.
func Backoff(retry Retry) QueueOption { return func(s *queueSettings) { s.retry = retry } }

// TimeLimit ends the context of a handler after so long. What the handler returns then settles the message as always,
// and the message waits for it: Go cannot end a goroutine.
func TimeLimit(limit time.Duration) QueueOption {
	return func(s *queueSettings) { s.timeLimit = limit }
}

// Queue adds a queue. Each queue has handlers of its own, so that none waits for another's.
// [Worker.Run] reports what is wrong with it.
func (w *Worker) Queue(queue *Queue, handler Handler, options ...QueueOption) *Worker {
	return w.add(queue, handler, nil, options)
}

// add adds a queue, whose handler is that of batches unless these are nil.
func (w *Worker) add(queue *Queue, handler Handler, batches *batches, options []QueueOption) *Worker {
	settings := queueSettings{16, 30 * time.Second, 0, Exponential(time.Second, time.Hour)}
	for _, option := range options {
		option(&settings)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	hasIt := slices.ContainsFunc(w.consumers, func(one *consumer) bool { return one.queue.Name() == queue.Name() })
	var err error
	switch {
	case queue.err != nil:
		err = queue.err
	case handler == nil:
		err = invalid("queue %s needs a handler: a function of a delivery", queue.Name())
	case settings.retry == nil:
		err = invalid("queue %s needs a Backoff that is not nil", queue.Name())
	case queue.client != w.client:
		err = invalid("queue %s is of another client", queue.Name())
	case w.isBegun:
		err = invalid("the worker runs: give it all queues before")
	case hasIt:
		err = invalid("the worker has queue %s already", queue.Name())
	case settings.concurrency < 1 || settings.concurrency > 10_000:
		err = invalid("concurrency is %d, it must be a whole number from 1 to 10000", settings.concurrency)
	case settings.lease < time.Millisecond || settings.lease > longestLease:
		err = invalid("the lease is %s, it must be 1 ms to %s", settings.lease, longestLease)
	}
	if err == nil && batches != nil {
		settings, err = batches.configure(settings)
	}
	if err != nil {
		if w.err == nil {
			w.err = err
		}
		return w
	}
	w.consumers = append(w.consumers, newConsumer(queue, handler, batches, settings, w.nodeID, w.log))
	return w
}

// Run handles messages until ctx ends or [Worker.Stop]; then it stops gracefully, and returns nil.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.begin(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-w.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	var all sync.WaitGroup
	for _, one := range w.consumers {
		all.Add(1)
		go func() { defer all.Done(); one.run(ctx, w.grace) }()
	}
	all.Wait()
	return nil
}

func (w *Worker) begin() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.err != nil:
		return w.err
	case w.isBegun:
		return invalid("the worker runs, or has run: make a new one")
	case len(w.consumers) == 0:
		return invalid("the worker has no queue: add one by Queue before it runs")
	}
	if err := w.consumers[0].queue.check(); err != nil {
		return err
	}
	w.isBegun = true
	return nil
}

// Stop claims no more messages, and ends Run once the handlers have ended.
func (w *Worker) Stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.stop:
	default:
		close(w.stop)
	}
}
