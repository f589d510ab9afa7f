package dueq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
)

var errLeft = errors.New("the handler ended its goroutine, as by runtime.Goexit")

// held is a delivery whose handler runs.
type held struct {
	delivery  *Delivery
	partition *partition
	ctx       context.Context
	cancel    context.CancelCauseFunc
	ended     chan struct{} // closed when the handler has ended, or the worker has given it up

	// Guarded by the consumer's lock, by the monotonic clock:
	extendAt, expires time.Duration
}

func (c *consumer) handle(one *held) {
	defer one.cancel(nil)
	settlement, isSettled := Release(), true
	c.mu.Lock()
	isStopping := c.isStopping
	c.mu.Unlock()
	if !isStopping { // a claim may have been under way as the worker stopped
		settlement, isSettled = c.runHandler(one)
	}
	if isSettled && settlement.verb == "throttle" {
		c.settle(one, settlement) // first: this place must not start another message
		isSettled = false
	}
	if c.drop(one) && isSettled {
		c.settle(one, settlement)
	}
}

// drop gives back the place of a handler, unless the worker has done so.
func (c *consumer) drop(one *held) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.all[one] {
		return false
	}
	delete(c.all, one)
	close(one.ended)
	c.giveBack(1)
	return true
}

// guarded runs a handler in a goroutine of its own, and sends its result, also if it panics or ends the goroutine. After
// the time limit, unless it is 0, the handler's context ends.
func guarded(ctx context.Context, limit time.Duration, log *slog.Logger, first *Delivery, handler func(context.Context) error) <-chan error {
	done := make(chan error, 1)
	go func() {
		err, late := errLeft, fmt.Errorf("the time limit of %s has passed", limit)
		if limit > 0 {
			var release context.CancelFunc
			ctx, release = context.WithTimeoutCause(ctx, limit, late)
			defer release()
		}
		defer func() {
			if reason := recover(); reason != nil {
				err = fmt.Errorf("panic: %v", reason)
				log.Error("the handler panicked", "id", first.ID, "reason", reason, "stack", string(debug.Stack()))
			}
			if err != nil && context.Cause(ctx) == late {
				err = fmt.Errorf("%w: %w", late, err)
			}
			done <- err
		}()
		err = handler(ctx)
	}()
	return done
}

// runHandler returns how the delivery is settled; false if its lease was lost or the worker has stopped without it.
func (c *consumer) runHandler(one *held) (Settlement, bool) {
	delivery := one.delivery
	done := guarded(one.ctx, c.settings.timeLimit, c.log, delivery, func(ctx context.Context) error { return c.handler(ctx, delivery) })
	var err error
	select {
	case err = <-done:
	case <-one.ended:
		return Settlement{}, false
	}
	if delivery.IsLost() {
		return Settlement{}, false
	}
	var settlement Settlement
	switch {
	case err == nil:
		return Ack(), true
	case errors.As(err, &settlement):
		return settlement, true
	case context.Cause(one.ctx) == ErrStopped:
		return Release(), true
	}
	c.log.Warn("the handler failed", "id", delivery.ID, "attempt", delivery.Attempt, "error", err)
	return RetryAfter(err, c.settings.retry(delivery.Attempt)), true
}
