package dueq

import (
	"context"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"
)

const (
	mostClaimed = 256
	// gather: handlers often end together, and a claim for many messages costs little more than a claim for one.
	gather = 100 * time.Microsecond
	// cleanup is how long a handler that is cancelled at the end of the worker may clean up.
	cleanup = 2 * time.Second
)

// consumer runs the handler for the messages of one queue, `concurrency` of them at a time.
type consumer struct {
	queue    *Queue
	handler  Handler
	batches  *batches // whose method the handler is; nil if it takes single deliveries
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
	gatherUntil   time.Duration // 0 unless a claim waits for more handlers to end
	turn          int
}

func newConsumer(
	queue *Queue, handler Handler, batches *batches, settings queueSettings, nodeID string, log *slog.Logger,
) *consumer {
	return &consumer{
		queue: queue, handler: handler, batches: batches, settings: settings, nodeID: nodeID, log: log.With("queue", queue.Name()),
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
	if !c.isDispatching && !c.isStopping && c.free > 0 && len(c.wanting()) > 0 {
		c.isDispatching = true
		c.spawn(c.claims)
	}
}

// wanting are the nodes that want to claim and may; none if they wait for more handlers to end. The caller holds the lock.
func (c *consumer) wanting() []*node {
	var all []*node
	isUrgent := false
	for _, one := range c.nodes {
		if one.wanted && !one.claiming {
			all = append(all, one)
			isUrgent = isUrgent || !one.hasTime
		}
	}
	if len(all) == 0 || isUrgent || len(c.all) == 0 || c.free >= mostClaimed {
		return all
	}
	if c.gatherUntil == 0 {
		c.gatherUntil = mono() + gather
		time.AfterFunc(gather, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.dispatch()
		})
		return nil
	}
	if mono() < c.gatherUntil {
		return nil
	}
	return all
}

// claims for the nodes that want to, in turn, while handlers are free.
func (c *consumer) claims() {
	runtime.Gosched()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isDispatching = false
	wanting := c.wanting()
	if c.isStopping || len(wanting) == 0 {
		return
	}
	c.gatherUntil = 0
	c.turn++
	share := max(c.free/len(wanting), 1)
	for at := range wanting {
		count := min(share, c.free, mostClaimed)
		if count == 0 {
			return
		}
		one := wanting[(c.turn+at)%len(wanting)]
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
	all, expires := one.claim(count, token, c.settings.lease)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, granted := range all {
		ctx, cancel := context.WithCancelCause(context.Background())
		made := &held{
			delivery: newDelivery(c.queue.Name(), token, granted), partition: one.partition, ctx: ctx, cancel: cancel,
			ended: make(chan struct{}), extendAt: expires - c.settings.lease*2/3, expires: expires,
		}
		c.all[made] = true
		c.spawn(func() { c.handle(made) })
	}
	c.giveBack(count - len(all)) // also of none: a node may have wanted to claim meanwhile
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
	if c.batches != nil {
		c.batches.close()
	}
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
