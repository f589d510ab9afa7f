// asynq as dueq-bench drives it. README.md says how it is configured.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
)

const (
	payloadBytes = 100
	digits       = 13
	// It has no call for many: so many single ones at a time.
	inFlight    = 64
	concurrency = 100
)

type dues struct {
	AtMs     int64  `json:"at_ms"`
	SpreadMs int64  `json:"spread_ms"`
	Order    string `json:"order"`
}

type request struct {
	Do          string `json:"do"`
	Queue       string `json:"queue"`
	N           int64  `json:"n"`
	Concurrency int    `json:"concurrency"`
	Batch       int    `json:"batch"`
	PerS        int64  `json:"per_s"`
	DelayMs     int64  `json:"delay_ms"`
	LimitMs     int64  `json:"limit_ms"`
	Late        bool   `json:"late"`
	Due         dues   `json:"due"`
}

type reply struct {
	Error  *string `json:"error"`
	FromUs int64   `json:"from_us"`
	ToUs   int64   `json:"to_us"`
	N      int64   `json:"n"`
	LateUs []int64 `json:"late_us"`
}

type driver struct {
	redis   asynq.RedisClientOpt
	name    string
	client  *asynq.Client
	look    *asynq.Inspector
	server  *asynq.Server
	started atomic.Int64
	mutex   sync.Mutex
	lateUs  []int64
}

func (d dues) of(i, n int64) int64 {
	if d.AtMs == 0 {
		return 0
	}
	place := i
	switch d.Order {
	case "backward":
		place = n - 1 - i
	case "shuffled":
		high, low := bits.Mul64(uint64(i), 7368787)
		_, rest := bits.Div64(high, low, uint64(n))
		place = int64(rest)
	}
	return d.AtMs + place*d.SpreadMs/n
}

func (d *driver) push(dueMs int64) error {
	shown := dueMs
	if shown == 0 {
		shown = time.Now().UnixMilli()
	}
	payload := fmt.Sprintf("%0*d%s", digits, shown, strings.Repeat("x", payloadBytes-digits))
	options := []asynq.Option{asynq.Queue(d.name)}
	if dueMs != 0 {
		options = append(options, asynq.ProcessAt(time.UnixMilli(dueMs)))
	}
	_, err := d.client.Enqueue(asynq.NewTask("m", []byte(payload)), options...)
	return err
}

// shareOut runs one for each number below n, so many at a time.
func shareOut(n int64, tasks int, one func(int64) error) error {
	failed := make(chan error, tasks)
	for first := int64(0); first < int64(tasks); first++ {
		go func() {
			for i := first; i < n; i += int64(tasks) {
				if err := one(i); err != nil {
					failed <- err
					return
				}
			}
			failed <- nil
		}()
	}
	var failure error
	for range tasks {
		if err := <-failed; err != nil {
			failure = err
		}
	}
	return failure
}

func (d *driver) pace(r request) error {
	start := time.Now()
	failed := make(chan error, r.N)
	for i := range r.N {
		time.Sleep(time.Until(start.Add(time.Duration(i * int64(time.Second) / r.PerS))))
		dueMs := time.Now().UnixMilli() + r.DelayMs + i*7919%97
		go func() { failed <- d.push(dueMs) }()
	}
	var failure error
	for range r.N {
		if err := <-failed; err != nil {
			failure = err
		}
	}
	return failure
}

func (d *driver) work(handlers int) error {
	d.server = asynq.NewServer(d.redis, asynq.Config{
		Concurrency: handlers,
		Queues:      map[string]int{d.name: 1},
		LogLevel:    asynq.FatalLevel,
		// What is least late: the defaults are 5 s and 1 s.
		DelayedTaskCheckInterval: 100 * time.Millisecond,
		TaskCheckInterval:        100 * time.Millisecond,
	})
	return d.server.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		now := time.Now().UnixMicro()
		dueMs, err := strconv.ParseInt(string(task.Payload()[:digits]), 10, 64)
		if err != nil {
			return err
		}
		d.mutex.Lock()
		d.lateUs = append(d.lateUs, now-dueMs*1000)
		d.mutex.Unlock()
		d.started.Add(1)
		return nil
	}))
}

// drain waits for the handlers, then until the queue has no active task: the server acknowledges after the handler.
func (d *driver) drain(r request, answer *reply) error {
	limit := time.Now().Add(time.Duration(r.LimitMs) * time.Millisecond)
	for time.Now().Before(limit) {
		if d.started.Load() >= r.N {
			info, err := d.look.GetQueueInfo(d.name)
			if err != nil {
				return err
			}
			if info.Active == 0 {
				break
			}
		}
		time.Sleep(time.Millisecond)
	}
	answer.N = d.started.Load()
	if r.Late {
		d.mutex.Lock()
		answer.LateUs, d.lateUs = d.lateUs, nil
		d.mutex.Unlock()
	}
	return nil
}

func (d *driver) answer(r request) (reply, error) {
	answer := reply{FromUs: time.Now().UnixMicro(), N: r.N, LateUs: []int64{}}
	var err error
	switch r.Do {
	case "open":
		d.name, d.server = r.Queue, nil
		d.client, d.look = asynq.NewClient(d.redis), asynq.NewInspector(d.redis)
		d.started.Store(0)
		d.lateUs = nil
	case "push":
		err = shareOut(r.N, r.Concurrency, func(i int64) error { return d.push(r.Due.of(i, r.N)) })
	case "bulk":
		err = shareOut(r.N, inFlight, func(i int64) error { return d.push(r.Due.of(i, r.N)) })
	case "pace":
		err = d.pace(r)
	case "work":
		handlers := r.Concurrency
		if handlers == 0 {
			handlers = concurrency
		}
		err = d.work(handlers)
	case "drain":
		err = d.drain(r, &answer)
	case "close":
		if d.server != nil {
			d.server.Shutdown()
		}
		d.client.Close()
		d.look.Close()
	default:
		err = fmt.Errorf("not a request: %s", r.Do)
	}
	answer.ToUs = time.Now().UnixMicro()
	return answer, err
}

func main() {
	address := strings.Trim(strings.TrimPrefix(os.Args[1], "redis://"), "/")
	d := &driver{redis: asynq.RedisClientOpt{Addr: address, PoolSize: concurrency}}
	lines := bufio.NewScanner(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	lines.Buffer(nil, math.MaxInt32)
	for lines.Scan() {
		var r request
		answer := reply{}
		err := json.Unmarshal(lines.Bytes(), &r)
		if err == nil {
			answer, err = d.answer(r)
		}
		if err != nil {
			text := err.Error()
			answer.Error = &text
		}
		if err := out.Encode(answer); err != nil {
			os.Exit(1)
		}
	}
}
