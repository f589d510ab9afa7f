package dueq

import (
	"context"
	"fmt"
	"hash/crc32"
	"log/slog"
	"math"
	"sync"
	"time"
)

const (
	// fallback is the longest time for which a node relies on hints alone.
	fallback      = time.Second
	beatInterval  = 900 * time.Millisecond
	leadTerm      = 2_500 * time.Millisecond
	tick          = 100 * time.Microsecond
	standbyStep   = 25 * time.Millisecond
	strandedAfter = 2_500 * time.Millisecond
	mostPromoted  = 256
	mostReaped    = 64
	never         = time.Duration(math.MaxInt64)
)

// host is what a node needs of the consumer that has its handlers. Its lock guards the state of its nodes, too:
// they call these methods while they hold it.
type host interface {
	freeHandlers() int
	runningHandlers() int
	dispatch()
	sawEpoch(epoch *int64)
	// spawn runs work that the consumer waits for as it stops; afterwards it does nothing.
	spawn(work func())
}

// node works at one partition: it beats, leads or stands by, promotes, reaps, and learns when to claim.
type node struct {
	partition *partition
	id        string
	host      host
	log       *slog.Logger
	lock      *sync.Mutex // the consumer's; it guards what follows

	wanted, claiming bool // it should claim as soon as a handler is free; it does so
	hasTime          bool // it wants to only because the last claim left messages behind
	newest           *reply
	leadsUntil       time.Duration
	heardAt          time.Duration // when the last notice came
	nodes            int64
	reapAfterMs      int64
	promote, reap    *alarm
	emptyClaims      int
	moving           string
	movingSince      time.Duration
	failing          map[string]bool

	beatNow, claimed chan struct{} // of length 1: something has changed
	stop, stopClaims context.CancelFunc
	beating, taking  sync.WaitGroup
}

func newNode(partition *partition, id string, host host, log *slog.Logger, lock *sync.Mutex) *node {
	n := &node{
		partition: partition, id: id, host: host, log: log, lock: lock, nodes: 1,
		failing: map[string]bool{}, beatNow: make(chan struct{}, 1), claimed: make(chan struct{}, 1),
	}
	n.promote = newAlarm(lock, host.spawn, n.promoteNow)
	n.reap = newAlarm(lock, host.spawn, n.reapNow)
	return n
}

func notify(changed chan struct{}) {
	select {
	case changed <- struct{}{}:
	default:
	}
}

// start works until `end`.
func (n *node) start() {
	ctx, stop := context.WithCancel(context.Background())
	claims, stopClaims := context.WithCancel(ctx)
	n.stop, n.stopClaims = stop, stopClaims
	n.beating.Add(1)
	n.taking.Add(2)
	go func() { defer n.beating.Done(); n.beats(ctx) }()
	go func() { defer n.taking.Done(); n.pops(claims) }()
	go func() { defer n.taking.Done(); n.notices(claims) }()
}

// stopClaiming waits for no more messages, and returns the wake-up tokens that this node may have taken.
func (n *node) stopClaiming() {
	n.lock.Lock()
	n.wanted = false
	n.promote.clear()
	n.lock.Unlock()
	n.stopClaims()
	n.taking.Wait()
	n.returnToken()
}

// end stops the node, and tells the other nodes so.
func (n *node) end() {
	n.stop()
	n.beating.Wait()
	n.taking.Wait()
	n.lock.Lock()
	n.promote.clear()
	n.reap.clear()
	n.lock.Unlock()
	if _, err := n.partition.call(context.Background(), "beat", "", n.id, "leave"); err != nil {
		n.log.Info("the other nodes learn in 3 s that this one has stopped", "error", err)
	}
}

// saw uses the header of a reply, unless a newer one was used. The caller holds the lock.
func (n *node) saw(read *reply, isBeat bool) {
	old := n.newest
	if old != nil && !isNewer(read, old) {
		return
	}
	if old != nil && old.incarnation != read.incarnation {
		if old.incarnation != "" {
			n.log.Warn("the queue was emptied or replaced")
		}
		notify(n.beatNow) // the new queue has no leader yet
	}
	n.newest = read
	n.host.sawEpoch(read.epoch)
	if read.paused {
		n.promote.clear()
	} else {
		n.headIs(read.headMs, read.sent, isBeat, false)
	}
	if read.deadlineMs != nil {
		n.reap.arm(n.reapAt(*read.deadlineMs))
	}
}

func (n *node) reapAt(deadlineMs int64) time.Duration {
	return n.partition.at(max(deadlineMs, n.reapAfterMs)) + n.standby(deadlineMs)
}

func (n *node) promoteAt(headMs int64) time.Duration {
	return n.partition.at(headMs) + n.standby(headMs)
}

func (n *node) leads() bool { return mono() < n.leadsUntil }

// headIs arms the promotion. The caller holds the lock.
func (n *node) headIs(headMs *int64, sent time.Duration, isBeat, isHeard bool) {
	// A leader that has promoted its head lives. A reply may be older than the notice that came before it.
	if !n.leads() && sent >= n.heardAt {
		n.promote.clear()
	}
	if headMs == nil {
		return
	}
	if n.newest != nil && *headMs*1_000 <= n.newest.nowUs && !isHeard {
		// The call has added wake-up tokens. One of them may have been lost, so a beat looks after it.
		if isBeat {
			n.promote.arm(mono())
		}
		return
	}
	n.promote.arm(n.promoteAt(*headMs))
}

// standby is by how much this node acts later than the leader. It differs between nodes, and between times.
func (n *node) standby(ms int64) time.Duration {
	if n.leads() {
		return 0
	}
	part := float64(crc32.ChecksumIEEE(fmt.Append(nil, n.id, ms))) / (1 << 32)
	return min(time.Duration(float64(standbyStep)*(1+part*float64(n.nodes))), fallback)
}

func (n *node) promoteNow() time.Duration {
	n.lock.Lock()
	isAlone := n.nodes == 1 || n.leads() && n.host.runningHandlers() == 0
	if n.host.freeHandlers() > 0 && isAlone {
		n.want() // a claim takes due messages, too
		n.lock.Unlock()
		return never
	}
	n.lock.Unlock()
	read, err := n.partition.call(context.Background(), "promote", "", mostPromoted)
	n.lock.Lock()
	defer n.lock.Unlock()
	switch {
	case err != nil:
		n.failed("promote", err)
		return never
	case read.headMs == nil || read.paused:
		n.saw(read, false)
		return never
	}
	n.saw(read, false)
	switch {
	case !read.headPassed():
		return max(n.promoteAt(*read.headMs), mono()+tick)
	case read.number(0) == mostPromoted:
		return mono()
	}
	return never
}

func (n *node) reapNow() time.Duration {
	n.lock.Lock()
	if n.newest == nil || n.newest.deadlineMs == nil {
		n.lock.Unlock()
		return never
	}
	deadlineMs := *n.newest.deadlineMs
	if n.partition.at(max(deadlineMs, n.reapAfterMs)) > mono() { // the lease was settled or extended since
		defer n.lock.Unlock()
		return n.reapAt(deadlineMs)
	}
	n.lock.Unlock()
	read, err := n.partition.call(context.Background(), "reap", "", mostReaped)
	n.lock.Lock()
	defer n.lock.Unlock()
	if err != nil {
		n.failed("reap", err)
		return mono() + fallback
	}
	n.saw(read, false)
	reaped := read.number(0)
	if reaped > 0 {
		n.log.Warn("leases of other nodes ran out", "leases", reaped)
	}
	switch {
	case read.deadlineMs == nil:
		return never
	case *read.deadlineMs*1_000 > read.nowUs:
		return n.reapAt(*read.deadlineMs)
	case reaped > 0:
		return mono()
	}
	return mono() + fallback
}

func (n *node) beats(ctx context.Context) {
	pause := newPatience()
	for ctx.Err() == nil {
		select {
		case <-n.beatNow:
		default:
		}
		read, err := n.partition.call(context.Background(), "beat", "", n.id, "stay")
		if err == nil && len(read.body) < 4 {
			err = unexpected("beat", read.body)
		}
		if err != nil {
			n.failedLocking("beat", err)
			pause.pause(ctx)
			continue
		}
		pause = newPatience()
		n.sawBeat(read)
		timer := time.NewTimer(read.sent + beatInterval - mono())
		select {
		case <-timer.C:
		case <-n.beatNow:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

func (n *node) sawBeat(read *reply) {
	n.lock.Lock()
	defer n.lock.Unlock()
	if n.failing["outage"] {
		n.log.Warn("redis answers again")
		delete(n.failing, "outage")
	}
	n.leadsUntil = 0
	if read.number(0) == 1 {
		n.leadsUntil = read.sent + leadTerm
	}
	n.nodes, n.reapAfterMs = max(read.number(1), 1), read.number(2)
	n.saw(read, true)
	if read.number(3) != 0 {
		n.want()
	}
	if !n.leads() {
		return
	}
	moving := read.text(5)
	if moving != n.moving {
		n.moving, n.movingSince = moving, mono()
	}
	if moving != "" && mono()-n.movingSince >= strandedAfter && read.epoch != nil {
		n.moving = ""
		fence := fmt.Sprint("m", *read.epoch)
		n.host.spawn(func() { n.endStranded(moving, fence) })
	}
}

// failed logs the first error of an outage, and of each other kind. The caller holds the lock.
func (n *node) failed(what string, err error) {
	failure := asError(err)
	kind := what + " " + failure.Code
	if failure.isOutage() {
		kind = "outage"
	}
	if !n.failing[kind] {
		n.log.Warn(what+" failed and is tried again", "error", err)
	}
	n.failing[kind] = true
}

func (n *node) failedLocking(what string, err error) {
	n.lock.Lock()
	defer n.lock.Unlock()
	n.failed(what, err)
}

// isNewer goes by the rules of the protocol: calls use several connections, so replies overtake each other.
func isNewer(read, old *reply) bool {
	switch {
	case read.sent >= old.received:
		return true
	case read.incarnation != old.incarnation, read.seq == old.seq:
		return read.nowUs > old.nowUs
	}
	return read.seq > old.seq
}
