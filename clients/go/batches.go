package dueq

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

const (
	batchBytes = 1 << 20
	// enough: with this many waiting items a second call may be under way. A call costs Redis about as much as 8 items.
	enough            = 32
	enoughSettlements = 128
	// linger: nobody waits for the settlements of handlers, so they wait a little for each other.
	linger = time.Millisecond
)

var mostItems = map[string]int{"push": 256, "ack": 256, "upsert": 64, "throttle": 16}

func isSettlement(verb string) bool {
	return slices.Contains([]string{"ack", "again", "release", "bury", "retry", "snooze", "throttle"}, verb)
}

// answer is the result of one item as the script said it, and whether the item was sent more than once.
type answer struct {
	text     string
	nowUs    int64
	repeated bool
}

// refusal: the partition has another map. No try of the item was applied, or the error says that one may have been.
type refusal struct{ failure *Error }

func (r *refusal) Error() string { return r.failure.Error() }

// item of a batch, and whether a call with it may be repeated.
type item struct {
	arguments  []any
	repeatable bool
	lane       *lane
	isSent     bool          // guarded by the lane
	done       chan struct{} // closed once answer or err is set
	answer     answer
	err        error
}

func (i *item) size() int {
	size := 0
	for _, argument := range i.arguments {
		switch argument := argument.(type) {
		case string:
			size += len(argument)
		case []byte:
			size += len(argument)
		}
	}
	return size
}

func (i *item) finish(answer answer, err error) {
	i.answer, i.err = answer, err
	close(i.done)
}

// wait returns the answer. If ctx ends before, an item that was sent is applied all the same, and another one is not.
func (i *item) wait(ctx context.Context) (answer, error) {
	select {
	case <-i.done:
		return i.answer, i.err
	case <-ctx.Done():
	}
	if i.lane.remove(i) {
		return answer{}, abandoned(ctx, AppliedNo)
	}
	select {
	case <-i.done:
		return i.answer, i.err
	default:
		return answer{}, abandoned(ctx, AppliedUnknown)
	}
}

// lane gathers the items of one verb at one partition under one fence: while one call is under way, the items that
// come meanwhile share the next one.
type lane struct {
	partition   *partition
	verb, fence string
	durability  Durability

	mu        sync.Mutex
	changed   *sync.Cond
	waiting   []*item
	unsafe    int // waiting items that must not be repeated
	calls     int
	isOrdered bool // the call under way has such an item
	starting  bool // a goroutine or the timer is about to start a call
	timer     *time.Timer
	lastSent  time.Duration
}

func newLane(partition *partition, key laneKey) *lane {
	l := &lane{partition: partition, verb: key.verb, fence: key.fence, durability: key.durability}
	l.changed = sync.NewCond(&l.mu)
	return l
}

func (l *lane) item(repeatable bool, arguments ...any) *item {
	return &item{arguments: arguments, repeatable: repeatable, lane: l, done: make(chan struct{})}
}

func (l *lane) submit(repeatable bool, arguments ...any) *item {
	one := l.item(repeatable, arguments...)
	l.submitAll([]*item{one})
	return one
}

// submitAll adds the items of one caller, so that no call takes a part of them that another call has room for.
func (l *lane) submitAll(items []*item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, items...)
	for _, one := range items {
		if !one.repeatable {
			l.unsafe++
		}
	}
	l.wake()
}

// remove takes back an item, unless it was sent.
func (l *lane) remove(one *item) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := slices.Index(l.waiting, one)
	if one.isSent || at < 0 {
		return false
	}
	l.waiting = slices.Delete(l.waiting, at, at+1)
	if !one.repeatable {
		l.unsafe--
	}
	return true
}

func (l *lane) isIdle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting) == 0 && l.calls == 0
}

// drain waits until nothing is waiting or under way.
func (l *lane) drain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.waiting) > 0 || l.calls > 0 {
		l.changed.Wait()
	}
}

func (l *lane) enough() int {
	if isSettlement(l.verb) {
		return enoughSettlements
	}
	return enough
}

// wake starts a call soon, if one may start. The caller holds mu.
func (l *lane) wake() {
	if len(l.waiting) == 0 || !l.mayStart() {
		return
	}
	isFull := len(l.waiting) >= l.enough()
	if l.starting && (!isFull || l.timer == nil || !l.timer.Stop()) {
		return
	}
	wait := time.Duration(0)
	if isSettlement(l.verb) && !isFull {
		wait = l.lastSent + linger - mono()
	}
	l.starting, l.timer = true, nil
	if wait > 0 {
		l.timer = time.AfterFunc(wait, l.start)
	} else {
		go l.start()
	}
}

// mayStart: items that must not be repeated keep their order, so their calls follow each other.
func (l *lane) mayStart() bool {
	return l.calls == 0 || l.calls == 1 && len(l.waiting) >= l.enough() && l.unsafe == 0 && !l.isOrdered
}

func (l *lane) start() {
	runtime.Gosched() // the goroutines that are ready add their items first
	l.mu.Lock()
	l.starting, l.timer = false, nil
	batch := l.take()
	if len(batch) == 0 {
		l.mu.Unlock()
		return
	}
	l.calls++
	l.lastSent = mono()
	l.wake()
	l.mu.Unlock()
	(&batchCall{lane: l, batch: batch, patience: newPatience(), began: mono()}).finish()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls--
	if l.calls == 0 {
		l.isOrdered = false
	}
	l.wake()
	l.changed.Broadcast()
}

// take removes a batch from those that wait.
func (l *lane) take() []*item {
	if !l.mayStart() {
		return nil
	}
	most := mostItems[l.verb]
	if most == 0 {
		most = 128
	}
	count, size := 0, 0
	for ; count < min(len(l.waiting), most); count++ {
		size += l.waiting[count].size()
		if count > 0 && size > batchBytes {
			break
		}
	}
	batch := slices.Clone(l.waiting[:count])
	l.waiting = slices.Delete(l.waiting, 0, count)
	for _, one := range batch {
		one.isSent = true
		if !one.repeatable {
			l.unsafe--
			l.isOrdered = true
		}
	}
	return batch
}
