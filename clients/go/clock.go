package dueq

import "time"

var start = time.Now()

// mono is the monotonic clock of this process. Nothing in this package decides by its wall clock.
func mono() time.Duration { return time.Since(start) }

// drift: two clocks drift apart by one part in this many at most.
const drift = 1_000

// clock is an estimate of the server's clock from the times in its replies: bounds of it minus the monotonic clock.
// Callers synchronize.
type clock struct {
	least, most, taken time.Duration
	known              bool
}

// observe: a reply bounds the difference. Earlier bounds count too, unless the server's clock was set since.
func (c *clock) observe(sent, received time.Duration, serverUs int64) {
	server := time.Duration(serverUs) * time.Microsecond
	least, most := server-received, server-sent
	if c.known {
		loose := c.loose(received)
		bothLeast, bothMost := max(least, c.least-loose), min(most, c.most+loose)
		if bothLeast <= bothMost {
			least, most = bothLeast, bothMost
		}
	}
	c.least, c.most, c.taken, c.known = least, most, received, true
}

func (c *clock) loose(at time.Duration) time.Duration {
	return (at-c.taken).Abs()/drift + time.Microsecond
}

func (c *clock) earliestUs(at time.Duration) int64 {
	return (at + c.least - c.loose(at)).Microseconds()
}

func (c *clock) latestUs(at time.Duration) int64 {
	return (at + c.most + c.loose(at)).Microseconds() + 1
}

// spread says by how much the estimate may be off.
func (c *clock) spread(at time.Duration) time.Duration { return c.most - c.least + 2*c.loose(at) }

// at is the monotonic time at which the server's clock shows this Unix millisecond.
func (c *clock) at(serverMs int64) time.Duration {
	return time.Duration(serverMs)*time.Millisecond - c.least - (c.most-c.least)/2
}
