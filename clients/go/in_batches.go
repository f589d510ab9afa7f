package dueq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// leastLinger lets the other deliveries of a claim join a batch.
const leastLinger = time.Millisecond

// BatchHandler handles up to `most` deliveries at a time, see [Worker.InBatches]. What it returns counts for each of
// them as the result of a [Handler], unless it is an [Each]. Its context ends once the leases of all are lost.
type BatchHandler func(ctx context.Context, batch []*Delivery) error

// Each is the results of the deliveries of a batch, in their order. A delivery without one is retried.
type Each []error

func (e Each) Error() string { return fmt.Sprintf("dueq: the results of %d deliveries", len(e)) }

// InBatches adds a queue with a handler of batches. A batch is closed when it has `most` messages, when `linger` (at
// most a third of the lease) has passed since its first one, or when the worker stops. [Concurrency] counts batches,
// and [TimeLimit] is that of a batch. A message whose earlier lease ran out comes alone, so that one which crashes its
// worker harms no other.
func (w *Worker) InBatches(
	queue *Queue, most int, linger time.Duration, handler BatchHandler, options ...QueueOption,
) *Worker {
	if handler == nil {
		return w.add(queue, nil, nil, options)
	}
	made := &batches{most: most, linger: linger, handler: handler, log: w.log}
	return w.add(queue, made.handle, made, options)
}

// batches gathers the deliveries of one queue, and gives each its result.
type batches struct {
	most      int
	linger    time.Duration
	handler   BatchHandler
	timeLimit time.Duration
	log       *slog.Logger
	running   chan struct{} // has room for as many batches as may run

	mu       sync.Mutex
	open     []*member
	isClosed bool
}

// member is a delivery that waits for the result of its batch.
type member struct {
	ctx      context.Context
	delivery *Delivery
	result   chan error
}

// configure gives the settings of a queue to its batches, and returns those of its single deliveries.
func (b *batches) configure(settings queueSettings) (queueSettings, error) {
	switch {
	case b.most < 1:
		return settings, invalid("a batch of at most %d messages: give at least 1", b.most)
	case b.linger < 0 || b.linger > settings.lease/3:
		return settings, invalid("a batch lingers for %s: it must be 0 to a third of the lease, %s", b.linger, settings.lease/3)
	}
	b.timeLimit, b.running = settings.timeLimit, make(chan struct{}, settings.concurrency)
	settings.timeLimit = 0
	settings.concurrency *= b.most
	return settings, nil
}

// handle returns the result of one delivery, once the batch that it joins was handled.
func (b *batches) handle(ctx context.Context, delivery *Delivery) error {
	one := &member{ctx, delivery, make(chan error, 1)}
	b.add(one)
	return <-one.result
}

func (b *batches) add(one *member) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if one.delivery.Crashes > 0 {
		go b.run([]*member{one})
		return
	}
	b.open = append(b.open, one)
	switch {
	case len(b.open) == b.most:
		b.flush()
	case len(b.open) == 1:
		linger := max(b.linger, leastLinger)
		if b.isClosed {
			linger = leastLinger
		}
		time.AfterFunc(linger, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			if len(b.open) > 0 && b.open[0] == one {
				b.flush()
			}
		})
	}
}

// close: the worker stops, so no batch waits for more messages.
func (b *batches) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.isClosed = true
	b.flush()
}

// flush closes the open batch. The caller holds the lock.
func (b *batches) flush() {
	if len(b.open) > 0 {
		go b.run(b.open)
		b.open = nil
	}
}

func (b *batches) run(all []*member) {
	ctx, cancel := whileAny(all)
	defer cancel(nil)
	select {
	case b.running <- struct{}{}:
		defer func() { <-b.running }()
	case <-ctx.Done():
	}
	var batch []*member
	var deliveries []*Delivery
	for _, one := range all {
		if one.ctx.Err() != nil { // its lease was lost while it waited, or the worker has stopped
			one.result <- context.Cause(one.ctx)
			continue
		}
		batch, deliveries = append(batch, one), append(deliveries, one.delivery)
	}
	if len(batch) == 0 {
		return
	}
	err := <-guarded(ctx, b.timeLimit, b.log, deliveries[0], func(ctx context.Context) error { return b.handler(ctx, deliveries) })
	var each Each
	isEach := errors.As(err, &each)
	for at, one := range batch {
		switch {
		case !isEach:
			one.result <- err
		case at < len(each):
			one.result <- each[at]
		default:
			one.result <- fmt.Errorf("the handler of the batch returned %d results, and none for this delivery", len(each))
		}
	}
}

// whileAny is a context that ends with the last one of the members.
func whileAny(all []*member) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(context.Background())
	var left atomic.Int64
	left.Store(int64(len(all)))
	for _, one := range all {
		context.AfterFunc(one.ctx, func() {
			if left.Add(-1) == 0 {
				cancel(context.Cause(one.ctx))
			}
		})
	}
	return ctx, cancel
}
