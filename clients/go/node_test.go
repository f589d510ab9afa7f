package dueq

import (
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"
)

// idle has a free handler, and nothing to do.
type idle struct{}

func (idle) freeHandlers() int    { return 1 }
func (idle) runningHandlers() int { return 0 }
func (idle) dispatch()            {}
func (idle) sawEpoch(*int64)      {}
func (idle) spawn(func())         {}

func TestABeatThatWasSentBeforeANoticeSparesTheTimerOfTheNotice(t *testing.T) {
	partition, err := newPartition(nil, "q", "-")
	if err != nil {
		t.Fatal(err)
	}
	partition.clock.observe(mono(), mono(), time.Now().UnixMicro())
	var lock sync.Mutex
	standby := newNode(partition, "node", idle{}, slog.Default(), &lock)
	beat := &reply{sent: mono()}
	notice := strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10)
	standby.heard(&notice)
	beat.received = mono() // it knew of no message yet
	lock.Lock()
	defer lock.Unlock()
	standby.saw(beat, true)
	if standby.promote.at == never {
		t.Error("the timer was cleared")
	}
	standby.saw(&reply{sent: mono(), received: mono()}, true)
	equal(t, standby.promote.at, never)
}

func TestAClaimOfABacklogWaitsForHandlersThatEndTogether(t *testing.T) {
	c := newConsumer(&Queue{router: &router{}}, nothing, nil, queueSettings{concurrency: 4}, "node", slog.Default())
	one := &node{lock: &c.mu, host: c, wanted: true}
	c.nodes, c.all, c.free = []*node{one}, map[*held]bool{{}: true, {}: true}, 2
	c.isStopping = true // nothing is claimed
	c.mu.Lock()
	defer c.mu.Unlock()
	equal(t, len(c.wanting()), 1) // a token came
	one.wanted = false
	one.wantMore()
	equal(t, len(c.wanting()), 0)
	c.gatherUntil = mono()
	equal(t, len(c.wanting()), 1) // some have not ended in time
	c.gatherUntil = 0
	equal(t, len(c.wanting()), 0)
	one.want()
	equal(t, len(c.wanting()), 1) // a token came meanwhile
	one.wanted = false
	one.wantMore()
	clear(c.all)
	equal(t, len(c.wanting()), 1) // all have ended
}
