package dueq

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"
)

// patienceLimit is how long a call is repeated before its error is reported.
var patienceLimit = 10 * time.Second

// unsure: from this uncertainty of the server's clock on, its time is asked for.
const unsure = time.Second

// patience is the repetitions of one call: for 10 s, with pauses from 10 ms, doubling up to 500 ms.
type patience struct{ end, wait time.Duration }

func newPatience() *patience { return &patience{mono() + patienceLimit, 10 * time.Millisecond} }

// allows says whether a call that ended with this error may be sent again.
func (p *patience) allows(failure *Error, repeatable bool) bool {
	harmless := repeatable || failure.Applied == AppliedNo
	return harmless && failure.isOutage() && !failure.isRemapped() && failure.cause != context.Canceled &&
		failure.cause != context.DeadlineExceeded && mono() < p.end
}

// pause returns whether ctx goes on.
func (p *patience) pause(ctx context.Context) bool {
	wait := time.Duration(float64(p.wait) * (0.5 + rand.Float64()/2))
	p.wait = min(2*p.wait, 500*time.Millisecond)
	return sleep(ctx, wait)
}

// sleep returns whether ctx goes on.
func sleep(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// attempt is what makes the tries of one push recognisable: all of them send the same argument.
type attempt struct {
	argument      string
	latestStartUs int64
}

// partition has the keys of one partition, and the clock of its server.
type partition struct {
	servers    *servers
	queue, tag string
	keys       keys

	mu    sync.Mutex
	clock clock
}

func newPartition(servers *servers, queue, tag string) (*partition, error) {
	keys, err := keysOf(queue, tag)
	return &partition{servers: servers, queue: queue, tag: tag, keys: keys}, err
}

// call is one try of a call.
func (p *partition) call(ctx context.Context, verb, fence string, arguments ...any) (*reply, error) {
	sent := mono()
	raw, err := p.servers.run(ctx, verb, p.keys.ten, append([]any{fence}, arguments...))
	return p.read(verb, raw, err, sent)
}

// callDurably is one try of a call that waits for replicas or disks.
func (p *partition) callDurably(d Durability, verb, fence string, arguments ...any) (*reply, error) {
	if d == (Durability{}) {
		return p.call(context.Background(), verb, fence, arguments...)
	}
	sent := mono()
	raw, err := p.servers.runDurably(verb, p.keys.ten, append([]any{fence}, arguments...), d)
	found, _ := raw.(confirmed)
	read, err := p.read(verb, found.value, err, sent)
	if err == nil {
		read.missing = found.missing
	}
	return read, err
}

func (p *partition) read(verb string, raw any, err error, sent time.Duration) (*reply, error) {
	if err != nil {
		return nil, err
	}
	read, err := readReply(verb, raw, sent, mono())
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clock.observe(sent, read.received, read.nowUs)
	return read, nil
}

// callPatiently repeats a call that may be repeated, for up to 10 s.
func (p *partition) callPatiently(ctx context.Context, verb, fence string, arguments ...any) (*reply, error) {
	patience, mayBeApplied := newPatience(), false
	for {
		read, err := p.call(ctx, verb, fence, arguments...)
		if err == nil {
			return read, nil
		}
		failure := asError(err)
		if !patience.allows(failure, true) || !patience.pause(ctx) {
			if mayBeApplied {
				failure = failure.ofRepeated()
			}
			return nil, failure
		}
		mayBeApplied = mayBeApplied || failure.Applied != AppliedNo
	}
}

// at is the monotonic time at which the server's clock shows this Unix millisecond.
func (p *partition) at(ms int64) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.clock.at(ms)
}

func (p *partition) clockIsKnown() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.clock.known
}

// newAttempt asks the server for its time, unless the clock is known well enough.
func (p *partition) newAttempt(ctx context.Context) (*attempt, error) {
	p.mu.Lock()
	isKnown := p.clock.known && p.clock.spread(mono()) < unsure
	p.mu.Unlock()
	if !isKnown {
		if err := p.learnTime(ctx); err != nil {
			return nil, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := mono()
	// From the earliest time at which the first try may begin: then no message that ended before is taken for it.
	until := p.clock.earliestUs(now) + patienceLimit.Microseconds()
	argument := fmt.Sprintf("%d.%03d %s", until/1_000, until%1_000, hex.EncodeToString(random(12)))
	return &attempt{argument, p.clock.latestUs(now)}, nil
}

// since is the server's time at this monotonic time, at the earliest, in Unix milliseconds.
func (p *partition) since(ctx context.Context, at time.Duration) (int64, error) {
	if err := p.learnTime(ctx); err != nil {
		return 0, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.clock.earliestUs(at) / 1_000, nil
}

func (p *partition) learnTime(ctx context.Context) error {
	sent := mono()
	raw, err := p.servers.call(ctx, p.keys.meta, "TIME")
	if err != nil {
		return asError(err).with(AppliedNo)
	}
	texts, ok := textsOf(raw)
	if !ok || len(texts) != 2 {
		return unexpected("TIME", raw).with(AppliedNo)
	}
	seconds, err := strconv.ParseInt(texts[0], 10, 64)
	us, err2 := strconv.ParseInt(texts[1], 10, 64)
	if err != nil || err2 != nil {
		return unexpected("TIME", raw).with(AppliedNo)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clock.observe(sent, mono(), seconds*1_000_000+us)
	return nil
}

// readMap reads the map in this partition's meta; nil without one.
func (p *partition) readMap(ctx context.Context) (*partitionMap, error) {
	raw, err := p.servers.call(ctx, p.keys.meta, "HGET", p.keys.meta, "map")
	if err != nil {
		return nil, asError(err).with(AppliedNo)
	}
	text, _ := raw.(string)
	if text == "" {
		return nil, nil
	}
	return parseMap(p.queue, text)
}
