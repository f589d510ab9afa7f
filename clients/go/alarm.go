package dueq

import (
	"sync"
	"time"
)

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
