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
