// Package driver has what the drivers in Go have in common: the line protocol of bench/README.md, the payloads, the counting.
package driver

import (
	"bufio"
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
)

const (
	payloadBytes = 100
	digits       = 13
)

// Message has a due time in Unix milliseconds, 0 for at once. Its payload begins with it.
type Message struct {
	DueMs   int64
	Payload []byte
}

func newMessage(dueMs int64) Message {
	shown := dueMs
	if shown == 0 {
		shown = time.Now().UnixMilli()
	}
	return Message{dueMs, []byte(fmt.Sprintf("%0*d%s", digits, shown, strings.Repeat("x", payloadBytes-digits)))}
}

// System is what is measured.
type System interface {
	Open(name string) error
	Push(message Message) error
	// PushMany pushes by one call. It is called with one message if the system has no such call.
	PushMany(messages []Message) error
	Work(handlers int, sink *Sink) error
	// Acked says whether n messages are acknowledged; all handlers of n have started before.
	Acked(n int64) (bool, error)
	Close() error
}

// Best is with what the system is fastest.
type Best struct{ Batch, InFlight, Concurrency int }

// Sink is where handlers report.
type Sink struct {
	started atomic.Int64
	mutex   sync.Mutex
	lateUs  []int64
}

// Start is called first by each handler.
func (s *Sink) Start(payload []byte) error {
	now := time.Now().UnixMicro()
	dueMs, err := strconv.ParseInt(string(payload[:digits]), 10, 64)
	if err != nil {
		return err
	}
	s.mutex.Lock()
	s.lateUs = append(s.lateUs, now-dueMs*1000)
	s.mutex.Unlock()
	s.started.Add(1)
	return nil
}

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
	system System
	best   Best
	sink   *Sink
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

func (d *driver) bulk(r request) error {
	size, inFlight := int64(d.best.Batch), d.best.InFlight
	if r.Batch != 0 && size > 1 {
		size, inFlight = int64(r.Batch), 1
	}
	return shareOut((r.N+size-1)/size, inFlight, func(batch int64) error {
		var messages []Message
		for i := batch * size; i < min(r.N, (batch+1)*size); i++ {
			messages = append(messages, newMessage(r.Due.of(i, r.N)))
		}
		return d.system.PushMany(messages)
	})
}

func (d *driver) pace(r request) error {
	start := time.Now()
	failed := make(chan error, r.N)
	for i := range r.N {
		time.Sleep(time.Until(start.Add(time.Duration(i * int64(time.Second) / r.PerS))))
		dueMs := time.Now().UnixMilli() + r.DelayMs + i*7919%97
		go func() { failed <- d.system.Push(newMessage(dueMs)) }()
	}
	var failure error
	for range r.N {
		if err := <-failed; err != nil {
			failure = err
		}
	}
	return failure
}

// drain waits for the handlers, then for the acknowledgements.
func (d *driver) drain(r request, answer *reply) error {
	limit := time.Now().Add(time.Duration(r.LimitMs) * time.Millisecond)
	for time.Now().Before(limit) {
		if d.sink.started.Load() >= r.N {
			done, err := d.system.Acked(r.N)
			if err != nil {
				return err
			}
			if done {
				break
			}
		}
		time.Sleep(time.Millisecond)
	}
	answer.N = d.sink.started.Load()
	if r.Late {
		d.sink.mutex.Lock()
		answer.LateUs, d.sink.lateUs = d.sink.lateUs, nil
		d.sink.mutex.Unlock()
	}
	return nil
}

func (d *driver) answer(r request) (reply, error) {
	answer := reply{FromUs: time.Now().UnixMicro(), N: r.N, LateUs: []int64{}}
	var err error
	switch r.Do {
	case "open":
		d.sink = &Sink{}
		err = d.system.Open(r.Queue)
	case "push":
		err = shareOut(r.N, r.Concurrency, func(i int64) error { return d.system.Push(newMessage(r.Due.of(i, r.N))) })
	case "bulk":
		err = d.bulk(r)
	case "pace":
		err = d.pace(r)
	case "work":
		handlers := r.Concurrency
		if handlers == 0 {
			handlers = d.best.Concurrency
		}
		err = d.system.Work(handlers, d.sink)
	case "drain":
		err = d.drain(r, &answer)
	case "close":
		err = d.system.Close()
	default:
		err = fmt.Errorf("not a request: %s", r.Do)
	}
	answer.ToUs = time.Now().UnixMicro()
	return answer, err
}

// Run answers requests until the input ends.
func Run(system System, best Best) {
	d := &driver{system: system, best: best}
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
