package dueq

import (
	"context"
	"time"
)

// want: the caller holds the lock.
func (n *node) want() {
	n.wanted, n.hasTime = true, false
	n.host.dispatch()
}

// wantMore: the caller holds the lock.
func (n *node) wantMore() {
	n.hasTime = n.hasTime || !n.wanted
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
	n.wanted, n.hasTime = false, false
	n.lock.Unlock()
	read, began, err := n.sendClaim(free, token, lease)
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
		n.wantMore()
	case !read.paused && n.emptyClaims%16 != 15:
		// Other nodes may have taken both tokens, and a claim may end 250 expired messages and grant none.
		time.AfterFunc(time.Millisecond, n.wantLocking)
	}
	return all, began + lease
}

// sendClaim repeats a claim whose reply was lost with the same token, and so finds what it granted. It returns also
// when the lease began at the earliest.
func (n *node) sendClaim(free int, token string, lease time.Duration) (*reply, time.Duration, error) {
	ctx, patience, first := context.Background(), newPatience(), mono()
	for {
		read, err := n.partition.call(ctx, "claim", "", free, token, lease.Milliseconds())
		if err == nil {
			return read, read.sent, nil
		}
		failure := asError(err)
		if failure.Code == "HELD" {
			read, err := n.partition.callPatiently(ctx, "held", "", token)
			return read, first, err
		}
		if !patience.allows(failure, true) {
			return nil, 0, err
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
