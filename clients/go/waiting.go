package dueq

import (
	"context"
)

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
