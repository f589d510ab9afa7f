package dueq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	mostClaimed  = 256
	mostExtended = 128
	errorBytes   = 1_024
	settlePause  = 100 * time.Millisecond
	// cleanup is how long a handler that is cancelled at the end of the worker may clean up.
	cleanup = 2 * time.Second
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

// consumer runs the handler for the messages of one queue, `concurrency` of them at a time.
type consumer struct {
	queue    *Queue
	handler  Handler
	settings queueSettings
	nodeID   string
	log      *slog.Logger
	work     sync.WaitGroup // what is under way, but for handlers

	mu            sync.Mutex
	free          int
	nodes         []*node
	all           map[*held]bool
	isStopping    bool
	isClosed      bool // nothing more is spawned
	isRemapping   bool
	isDispatching bool
	turn          int
}

func newConsumer(queue *Queue, handler Handler, settings queueSettings, nodeID string, log *slog.Logger) *consumer {
	return &consumer{
		queue: queue, handler: handler, settings: settings, nodeID: nodeID, log: log.With("queue", queue.Name()),
		free: settings.concurrency, all: map[*held]bool{},
	}
}

// run handles messages until ctx ends; then it lets handlers end for `grace`, and releases the rest.
func (c *consumer) run(ctx context.Context, grace time.Duration) {
	if _, err := c.queue.router.refresh(ctx); err != nil {
		c.log.Warn("the map of the partitions was not read yet", "error", err)
	}
	c.mu.Lock()
	c.attend()
	c.mu.Unlock()
	extending, stopExtending := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); c.extends(extending) }()
	<-ctx.Done()
	c.leave(grace)
	stopExtending()
	<-ended
}

func (c *consumer) freeHandlers() int    { return c.free }
func (c *consumer) runningHandlers() int { return len(c.all) }

// spawn: the caller holds the lock.
func (c *consumer) spawn(work func()) {
	if c.isClosed {
		return
	}
	c.work.Add(1)
	go func() { defer c.work.Done(); work() }()
}

// attend serves the partitions of the map: each of them, and no other. The caller holds the lock.
func (c *consumer) attend() {
	if c.isStopping {
		return
	}
	router := c.queue.router
	tags := router.current().tags()
	c.nodes = slices.DeleteFunc(c.nodes, func(one *node) bool {
		isPast := !slices.Contains(tags, one.partition.tag)
		if isPast {
			c.spawn(one.end)
		}
		return isPast
	})
	for _, tag := range tags {
		if !slices.ContainsFunc(c.nodes, func(one *node) bool { return one.partition.tag == tag }) {
			made := newNode(router.partition(tag), c.nodeID, c, c.log, &c.mu)
			c.nodes = append(c.nodes, made)
			made.start()
		}
	}
}

// sawEpoch: the caller holds the lock.
func (c *consumer) sawEpoch(epoch *int64) {
	known := c.queue.router.current()
	isSame := known == nil && epoch == nil || known != nil && epoch != nil && known.epoch == *epoch
	if isSame || c.isRemapping || c.isStopping {
		return
	}
	c.isRemapping = true
	c.spawn(func() {
		_, err := c.queue.router.refresh(context.Background())
		if err != nil {
			c.log.Info("the map of the partitions was not read", "error", err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.isRemapping = false
		c.attend()
	})
}

// dispatch claims soon: first all handlers that are about to end do so, and one claim serves them all.
// The caller holds the lock.
func (c *consumer) dispatch() {
	if !c.isDispatching && !c.isStopping && c.free > 0 {
		c.isDispatching = true
		c.spawn(c.claims)
	}
}

// claims for the nodes that want to, in turn, while handlers are free.
func (c *consumer) claims() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isDispatching = false
	var wanted []*node
	for _, one := range c.nodes {
		if one.wanted && !one.claiming {
			wanted = append(wanted, one)
		}
	}
	if c.isStopping || len(wanted) == 0 {
		return
	}
	c.turn++
	share := max(c.free/len(wanted), 1)
	for at := range wanted {
		count := min(share, c.free, mostClaimed)
		if count == 0 {
			return
		}
		one := wanted[(c.turn+at)%len(wanted)]
		c.free -= count
		one.claiming = true
		c.spawn(func() { c.claim(one, count) })
	}
}

// giveBack: the caller holds the lock.
func (c *consumer) giveBack(count int) {
	c.free += count
	if c.free > 0 {
		c.dispatch()
		for _, one := range c.nodes {
			notify(one.claimed)
		}
	}
}

func (c *consumer) claim(one *node, count int) {
	// A token tells its node, so that an operator finds leases whose node is gone.
	token := "@" + c.nodeID[len(c.nodeID)-7:] + string(random(8))
	third := mono() + c.settings.lease/3
	all, expires := one.claim(count, token, c.settings.lease)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, granted := range all {
		ctx, cancel := context.WithCancelCause(context.Background())
		made := &held{
			delivery: newDelivery(c.queue.Name(), token, granted), partition: one.partition, ctx: ctx, cancel: cancel,
			ended: make(chan struct{}), extendAt: third, expires: expires,
		}
		c.all[made] = true
		c.spawn(func() { c.handle(made) })
	}
	c.giveBack(count - len(all)) // also of none: a node may have wanted to claim meanwhile
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

// runHandler returns how the delivery is settled; false if its lease was lost or the worker has stopped without it.
func (c *consumer) runHandler(one *held) (Settlement, bool) {
	ctx, delivery := one.ctx, one.delivery
	late := fmt.Errorf("the time limit of %s has passed", c.settings.timeLimit)
	if limit := c.settings.timeLimit; limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, late)
		defer cancel()
	}
	done := make(chan error, 1)
	go func() {
		err := errLeft
		defer func() {
			if reason := recover(); reason != nil {
				err = fmt.Errorf("panic: %v", reason)
				c.log.Error("the handler panicked", "id", delivery.ID, "reason", reason, "stack", string(debug.Stack()))
			}
			done <- err
		}()
		err = c.handler(ctx, delivery)
	}()
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
	if context.Cause(ctx) == late {
		err = fmt.Errorf("%w: %w", late, err)
	}
	c.log.Warn("the handler failed", "id", delivery.ID, "attempt", delivery.Attempt, "error", err)
	return RetryAfter(err, c.settings.retry(delivery.Attempt)), true
}

// settle repeats a settlement at least until the lease ends, and falls back to a retry if the script refuses it.
func (c *consumer) settle(one *held, settlement Settlement) {
	delivery, log := one.delivery, c.log.With("id", one.delivery.ID, "verb", settlement.verb)
	for {
		outcome, err := c.settled(one, settlement)
		if err == nil {
			if outcome == settledGone || outcome == settledLost {
				log.Info("the delivery was settled before, or its lease was lost", "outcome", outcome)
			}
			return
		}
		failure := asError(err)
		c.mu.Lock()
		isOurs := mono() < one.expires
		c.mu.Unlock()
		switch {
		case (failure.Kind == KindInvalidInput || failure.Kind == KindFull) && settlement.verb != "retry":
			reason := fmt.Errorf("%s was refused: %w", settlement.verb, err)
			settlement = RetryAfter(reason, c.settings.retry(delivery.Attempt))
		case (failure.Retryable() || failure.Kind == KindDenied) && isOurs:
			// A right may be missing for a moment only, as while users are renewed.
			time.Sleep(settlePause)
		default:
			log.Error("the delivery was not settled, and comes again", "error", err)
			return
		}
	}
}

func (c *consumer) settled(one *held, settlement Settlement) (Outcome, error) {
	verb, delivery, router := settlement.verb, one.delivery, c.queue.router
	text := strings.ToValidUTF8(settlement.text[:min(len(settlement.text), errorBytes)], "")
	arguments := []any{delivery.ID, delivery.token}
	word := ""
	switch verb {
	case "ack":
		arguments = []any{delivery.token, delivery.ID}
	case "ack_push":
		return c.ackAndPush(one, settlement.messages)
	case "release":
	case "bury":
		arguments = append(arguments, text)
	default:
		made, err := settlement.word()
		if err != nil {
			return "", err
		}
		word = made
		arguments = append(arguments, word)
		if verb == "retry" {
			arguments = append(arguments, text)
		}
	}
	ctx := context.Background()
	found, err := router.lane(laneKey{tag: one.partition.tag, verb: verb}).submit(true, arguments...).wait(ctx)
	if err != nil {
		return "", err
	}
	read, err := readResult(verb, found.text)
	if err == nil && verb == "throttle" && read.outcome == settledUntil {
		for _, tag := range router.current().tags() {
			if tag != one.partition.tag {
				if _, err := router.partition(tag).callPatiently(ctx, "throttle", "", "close", word); err != nil {
					return "", err
				}
			}
		}
	}
	return read.outcome, err
}

// ackAndPush acks and stores the follow-ups in one step, but for those that the partitions' change takes elsewhere.
func (c *consumer) ackAndPush(one *held, messages []Message) (Outcome, error) {
	if len(messages) < 1 || len(messages) > 100 {
		return "", invalid("AckAnd takes 1 to 100 messages, not %d", len(messages))
	}
	ctx, router, delivery := context.Background(), c.queue.router, one.delivery
	named := make([]Message, len(messages))
	for at, message := range messages {
		named[at] = message.named(idOfFollowUp(delivery.ID, at+1))
		if err := named[at].err; err != nil {
			return "", err
		}
	}
	for {
		newest := router.current()
		var here []Message
		var words []any
		for _, message := range named {
			switch {
			case newest.keeps(message.id, one.partition.tag):
				here, words = append(here, message), append(words, message.arguments()...)
			case newest.isSettled():
				return "", invalid("the follow-up %q is of another partition: let the library name it", message.id)
			default:
				if _, err := c.queue.push(ctx, message); err != nil {
					return "", err
				}
			}
		}
		if len(here) == 0 {
			return c.settled(one, Ack())
		}
		read, err := one.partition.callPatiently(ctx, "ack_push", newest.fence(), append([]any{delivery.token + delivery.ID}, words...)...)
		if err != nil {
			failure := asError(err)
			if !failure.isRemapped() || failure.Applied != AppliedNo {
				return "", err
			}
			if isNewer, failed := router.refresh(ctx); failed != nil || !isNewer {
				return "", err
			}
			named = here
			continue
		}
		if read.text(0) == "REFUSED" {
			texts, _ := read.texts(1)
			for _, text := range texts {
				if _, err := readResult("ack_push", text); err != nil {
					return "", err
				}
			}
		}
		found, err := readResult("ack", read.text(0))
		return found.outcome, err
	}
}

// extends each lease when a third of it has passed; what is lost is cancelled.
func (c *consumer) extends(ctx context.Context) {
	for sleep(ctx, min(time.Second, c.settings.lease/6)) {
		now, due := mono(), map[*partition][]*held{}
		c.mu.Lock()
		for one := range c.all {
			if one.extendAt <= now && !one.delivery.IsLost() {
				due[one.partition] = append(due[one.partition], one)
			}
		}
		for partition, all := range due {
			for chunk := range slices.Chunk(all, mostExtended) {
				for _, one := range chunk {
					one.extendAt = now + c.settings.lease/3
				}
				c.spawn(func() { c.extend(partition, chunk) })
			}
		}
		c.mu.Unlock()
	}
}

func (c *consumer) extend(partition *partition, all []*held) {
	sent := mono()
	var words []any
	for _, one := range all {
		words = append(words, one.delivery.ID, one.delivery.token, c.settings.lease.Milliseconds())
	}
	read, err := partition.call(context.Background(), "extend", "", words...)
	var texts []string
	if err == nil {
		texts, err = resultTexts("extend", read, len(all))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.log.Warn("leases were not extended", "leases", len(all), "error", err)
		for _, one := range all {
			one.extendAt = 0 // at the next tick
			if one.expires <= mono() {
				c.lose(one)
			}
		}
		return
	}
	for at, one := range all {
		found, err := readResult("extend", texts[at])
		if err == nil && found.outcome == settledUntil {
			one.expires = sent + c.settings.lease
		} else {
			c.lose(one)
		}
	}
}

// lose: the caller holds the lock.
func (c *consumer) lose(one *held) {
	if c.all[one] && !one.delivery.lost.Swap(true) {
		c.log.Warn("the lease was lost, and the handler is asked to stop", "id", one.delivery.ID)
		one.cancel(ErrLeaseLost)
	}
}

// running is a copy of what the handlers have.
func (c *consumer) running() []*held {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]*held, 0, len(c.all))
	for one := range c.all {
		all = append(all, one)
	}
	return all
}

func (c *consumer) leave(grace time.Duration) {
	c.mu.Lock()
	c.isStopping = true
	nodes := slices.Clone(c.nodes)
	c.mu.Unlock()
	each(nodes, (*node).stopClaiming)
	c.await(grace)
	for _, one := range c.running() {
		one.cancel(ErrStopped) // its delivery is released
	}
	c.await(cleanup)
	for _, one := range c.running() {
		c.log.Error("the handler does not end; its message is released", "id", one.delivery.ID)
		one.delivery.lost.Store(true)
		if c.drop(one) {
			c.settle(one, Release())
		}
	}
	// Acts of the alarms may go on until the nodes have ended.
	each(nodes, (*node).end)
	c.mu.Lock()
	c.isClosed = true
	c.mu.Unlock()
	c.work.Wait()
}

// await waits until no handler runs.
func (c *consumer) await(limit time.Duration) {
	end := time.After(limit)
	for {
		all := c.running()
		if len(all) == 0 {
			return
		}
		select {
		case <-all[0].ended:
		case <-end:
			return
		}
	}
}

func each(nodes []*node, do func(*node)) {
	var all sync.WaitGroup
	for _, one := range nodes {
		all.Add(1)
		go func() { defer all.Done(); do(one) }()
	}
	all.Wait()
}
