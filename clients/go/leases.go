package dueq

import (
	"context"
	"slices"
	"time"
)

const mostExtended = 128

// extends each lease when a third of it has passed; what is lost is cancelled.
func (c *consumer) extends(ctx context.Context) {
	for sleep(ctx, min(time.Second, c.settings.lease/6)) {
		now, due := mono(), map[*partition][]*held{}
		c.mu.Lock()
		for one := range c.all {
			if one.extendAt <= now && !one.delivery.IsLost() {
				due[one.partition] = append(due[one.partition], one)
			}
		}
		for partition, all := range due {
			for chunk := range slices.Chunk(all, mostExtended) {
				for _, one := range chunk {
					one.extendAt = now + c.settings.lease/3
				}
				c.spawn(func() { c.extend(partition, chunk) })
			}
		}
		c.mu.Unlock()
	}
}

func (c *consumer) extend(partition *partition, all []*held) {
	sent := mono()
	var words []any
	for _, one := range all {
		words = append(words, one.delivery.ID, one.delivery.token, c.settings.lease.Milliseconds())
	}
	read, err := partition.call(context.Background(), "extend", "", words...)
	var texts []string
	if err == nil {
		texts, err = resultTexts("extend", read, len(all))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.log.Warn("leases were not extended", "leases", len(all), "error", err)
		for _, one := range all {
			one.extendAt = 0 // at the next tick
			if one.expires <= mono() {
				c.lose(one)
			}
		}
		return
	}
	for at, one := range all {
		found, err := readResult("extend", texts[at])
		if err == nil && found.outcome == settledUntil {
			one.expires = sent + c.settings.lease
		} else {
			c.lose(one)
		}
	}
}

// lose: the caller holds the lock.
func (c *consumer) lose(one *held) {
	if c.all[one] && !one.delivery.lost.Swap(true) {
		c.log.Warn("the lease was lost, and the handler is asked to stop", "id", one.delivery.ID)
		one.cancel(ErrLeaseLost)
	}
}
