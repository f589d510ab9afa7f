package dueq

import (
	"context"
	"fmt"
	"hash/crc32"
	"log/slog"
	"math"
	"strings"
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

// alarm acts at a time. At most one act is under way, and of several times the earliest counts.
// `act` runs without the lock, and returns when to act again, or never.
type alarm struct {
	lock  *sync.Mutex
	spawn func(work func())
	act   func() time.Duration

	timer *time.Timer
	at    time.Duration // never, unless the timer runs
	sent  time.Duration // when the act under way began; never, unless one is
	next  time.Duration
}

func newAlarm(lock *sync.Mutex, spawn func(work func()), act func() time.Duration) *alarm {
	return &alarm{lock: lock, spawn: spawn, act: act, at: never, sent: never, next: never}
}

// arm: the caller holds the lock.
func (a *alarm) arm(at time.Duration) {
	switch {
	case a.sent != never:
		if at > a.sent { // the act under way covers what was due when it began
			a.next = min(at, a.next)
		}
	case at < a.at:
		a.clear()
		a.at = at
		var own *time.Timer
		own = time.AfterFunc(at-mono(), func() { a.fire(&own) })
		a.timer = own
	}
}

// clear: the caller holds the lock.
func (a *alarm) clear() {
	if a.timer != nil {
		a.timer.Stop()
	}
	a.timer, a.at, a.next = nil, never, never
}

func (a *alarm) fire(own **time.Timer) {
	a.lock.Lock()
	defer a.lock.Unlock()
	if a.timer != *own { // it was cleared meanwhile
		return
	}
	a.timer, a.at, a.sent = nil, never, mono()
	a.spawn(func() {
		again := a.act()
		a.lock.Lock()
		defer a.lock.Unlock()
		a.sent = never
		later := min(again, a.next)
		a.next = never
		a.arm(later)
	})
}

// node works at one partition: it beats, leads or stands by, promotes, reaps, and learns when to claim.
type node struct {
	partition *partition
	id        string
	host      host
	log       *slog.Logger
	lock      *sync.Mutex // the consumer's; it guards what follows

	wanted, claiming bool // it should claim as soon as a handler is free; it does so
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

// want: the caller holds the lock.
func (n *node) want() {
	n.wanted = true
	n.host.dispatch()
}

func (n *node) wantLocking() {
	n.lock.Lock()
	defer n.lock.Unlock()
	n.want()
}

// claim returns up to `free` messages, and until when their lease runs at least.
func (n *node) claim(free int, token string, lease time.Duration) ([]granted, time.Duration) {
	n.lock.Lock()
	n.wanted = false
	n.lock.Unlock()
	began := mono()
	read, err := n.sendClaim(free, token, lease)
	var left int64
	var all []granted
	if err == nil {
		left, all, err = readClaim(read)
	}
	n.lock.Lock()
	defer n.lock.Unlock()
	n.claiming = false
	defer notify(n.claimed)
	if err != nil {
		n.failed("claim", err)
		// The lost reply may have told of a head, and its tokens are gone: the next beat tells again.
		notify(n.beatNow)
		return nil, 0
	}
	n.saw(read, false)
	isLeft := left > 0 || read.headPassed()
	n.emptyClaims++
	if len(all) > 0 {
		n.emptyClaims = 0
	}
	switch {
	case !isLeft:
	case len(all) == free:
		n.want()
	case !read.paused && n.emptyClaims%16 != 15:
		// Other nodes may have taken both tokens, and a claim may end 250 expired messages and grant none.
		time.AfterFunc(time.Millisecond, n.wantLocking)
	}
	return all, began + lease
}

// sendClaim repeats a claim whose reply was lost with the same token, and so finds what it granted.
func (n *node) sendClaim(free int, token string, lease time.Duration) (*reply, error) {
	ctx, patience := context.Background(), newPatience()
	for {
		read, err := n.partition.call(ctx, "claim", "", free, token, lease.Milliseconds())
		if err == nil {
			return read, nil
		}
		failure := asError(err)
		if failure.Code == "HELD" {
			return n.partition.callPatiently(ctx, "held", "", token)
		}
		if !patience.allows(failure, true) {
			return nil, err
		}
		n.failedLocking("claim", err)
		patience.pause(ctx)
	}
}

func (n *node) returnToken() {
	if _, err := n.partition.call(context.Background(), "claim", "", 0, string(random(16)), 1); err != nil {
		n.log.Info("a wake-up token was not returned: other nodes look within a second", "error", err)
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

// pops waits for wake-up tokens on a connection of its own, so that the end of ctx ends a call at once.
func (n *node) pops(ctx context.Context) {
	key, pause := n.partition.keys.wake, newPatience()
	var own *server
	defer func() {
		if own != nil {
			own.close()
		}
	}()
	for ctx.Err() == nil {
		n.lock.Lock()
		mayWait := n.host.freeHandlers() > 0 && !n.wanted && !n.claiming
		n.lock.Unlock()
		if !mayWait {
			select {
			case <-n.claimed:
			case <-ctx.Done():
			}
			continue
		}
		current, err := n.partition.servers.ofKey(ctx, key)
		var popped any
		if err == nil {
			if own == nil || own.address != current.address {
				if own != nil {
					own.close()
				}
				own = current.own()
			}
			end := context.AfterFunc(ctx, own.close)
			popped, err = own.call(context.Background(), false, "BLPOP", key, "1")
			end()
		}
		switch {
		case ctx.Err() != nil:
		case err != nil:
			n.failedLocking("BLPOP", err)
			pause.pause(ctx)
			n.wantLocking() // the lost reply may have brought a token
		case popped != nil:
			pause = newPatience()
			n.took()
		}
	}
}

// took uses a wake-up token.
func (n *node) took() {
	n.lock.Lock()
	isFree := n.host.freeHandlers() > 0
	if isFree {
		n.want()
	}
	n.lock.Unlock()
	if !isFree {
		n.returnToken()
	}
}

func (n *node) notices(ctx context.Context) {
	channel := n.partition.keys.notice
	for ctx.Err() == nil {
		server, err := n.partition.servers.ofKey(ctx, channel)
		if err == nil {
			err = server.listen(ctx, channel, n.heard)
		}
		if ctx.Err() == nil {
			n.failedLocking("SSUBSCRIBE", err)
		}
		sleep(ctx, fallback) // the beats bring the head meanwhile
	}
}

// heard uses a notice: the head became earlier, or is what a promote left. Nil: the subscription begins.
func (n *node) heard(notice *string) {
	n.lock.Lock()
	defer n.lock.Unlock()
	n.heardAt = mono()
	switch {
	case notice == nil:
		notify(n.beatNow) // what was published before was missed
	case *notice == "":
		n.headIs(nil, n.heardAt, false, true)
	case n.newest != nil && n.newest.incarnation == "":
		notify(n.beatNow) // a new queue, which has no leader yet
	case n.partition.clockIsKnown():
		if headMs := decimal(*notice); headMs != nil {
			n.headIs(headMs, n.heardAt, false, true)
		}
	}
}

// endStranded ends a batch that stays on its way to another partition for 2.5 s: who moved it may be dead.
func (n *node) endStranded(moving, fence string) {
	ctx, own := context.Background(), n.partition
	words := strings.Fields(moving)
	if len(words) < 2 {
		return
	}
	tag := words[1]
	err := func() error {
		departed, err := own.call(ctx, "depart", fence, "", 0, tag, 5_000)
		if err != nil || departed.number(0) == 0 {
			return err
		}
		number := departed.number(0)
		target, err := newPartition(own.servers, own.queue, tag)
		if err != nil {
			return err
		}
		arrived, err := target.callPatiently(ctx, "arrive", fence, own.tag, number, "")
		if err != nil {
			return err
		}
		word, _, _ := strings.Cut(arrived.text(0), " ")
		if ends := map[string]string{"VOID": "back", "APPLIED": "done"}[word]; ends != "" {
			_, err = own.callPatiently(ctx, "depart", fence, fmt.Sprintf("%s=%d", ends, number), 0, tag, 5_000)
		}
		return err
	}()
	if err != nil {
		n.log.Warn("a batch stays on its way to another partition", "error", err)
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
