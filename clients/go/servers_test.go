package dueq

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const limit = 30 * time.Second

var ctx = context.Background()

// TestMain runs a worker instead of the tests in the processes that tests kill.
func TestMain(m *testing.M) {
	if url := os.Getenv("DUEQ_TEST_WORKER"); url != "" {
		workInProcess(url)
	}
	os.Exit(m.Run())
}

// program is, as in the Rust tests, the first server of the variable, or the one that scripts/server finds.
var program = sync.OnceValue(func() string {
	first, _, _ := strings.Cut(os.Getenv("DUEQ_TEST_SERVERS"), ":")
	if first != "" {
		return first
	}
	found, err := exec.Command("../../scripts/server").Output()
	if err != nil {
		panic(err)
	}
	return strings.TrimSpace(string(found))
})

// freePort is one whose number + 10,000 is a port too: servers of a cluster use both.
func freePort(t testing.TB) int {
	t.Helper()
	for {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := listener.Addr().(*net.TCPAddr).Port
		listener.Close()
		if port < 55_000 {
			return port
		}
	}
}

// redisServer is a server of its own, which keeps its data through a kill.
type redisServer struct {
	t       testing.TB
	port    int
	folder  string
	options []string
	process *exec.Cmd
	client  *redis.Client
}

func startServer(t testing.TB, options ...string) *redisServer {
	t.Helper()
	s := &redisServer{t: t, port: freePort(t), options: options}
	folder, err := os.MkdirTemp("", "dueq-go-")
	if err != nil {
		t.Fatal(err)
	}
	s.folder = folder
	s.client = redis.NewClient(&redis.Options{Addr: s.address(), Protocol: 2})
	s.start()
	t.Cleanup(func() {
		s.client.Close()
		s.signal(syscall.SIGCONT)
		s.kill()
		os.RemoveAll(folder)
	})
	return s
}

func (s *redisServer) address() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }
func (s *redisServer) url() string     { return "redis://" + s.address() + "/" }

func (s *redisServer) start() {
	// With everysec a busy disk delays the writes, and a kill loses calls that were answered.
	words := append([]string{
		"--port", fmt.Sprint(s.port), "--dir", s.folder, "--save", "", "--appendonly", "yes", "--appendfsync", "always",
	}, s.options...)
	s.process = exec.Command(program(), words...)
	if err := s.process.Start(); err != nil {
		s.t.Fatal(err)
	}
	until(s.t, "the server answers", func() bool { return s.client.Ping(ctx).Err() == nil })
}

func (s *redisServer) signal(number syscall.Signal) { _ = s.process.Process.Signal(number) }

// freeze returns once the process has stopped, until SIGCONT.
func (s *redisServer) freeze() {
	s.t.Helper()
	s.signal(syscall.SIGSTOP)
	until(s.t, "the server is frozen", func() bool {
		state, _ := exec.Command("ps", "-o", "state=", "-p", fmt.Sprint(s.process.Process.Pid)).Output()
		return strings.HasPrefix(string(state), "T")
	})
}

func (s *redisServer) kill() {
	s.signal(syscall.SIGKILL)
	_ = s.process.Wait()
}

// do sends a command, and fails the test if it fails.
func (s *redisServer) do(words ...any) any {
	s.t.Helper()
	value, err := s.client.Do(ctx, words...).Result()
	if err != nil && err != redis.Nil {
		s.t.Fatalf("%v: %v", words, err)
	}
	return value
}

func (s *redisServer) knows(command string) bool {
	found, _ := s.do("COMMAND", "INFO", command).([]any)
	return len(found) == 1 && found[0] != nil
}

// calls is how many calls of a command the server has served.
func (s *redisServer) calls(command string) int {
	for line := range strings.Lines(s.do("INFO", "commandstats").(string)) {
		var calls int
		if _, err := fmt.Sscanf(line, "cmdstat_"+command+":calls=%d", &calls); err == nil {
			return calls
		}
	}
	return 0
}

// cpu is how many seconds of the processor the server has used.
func (s *redisServer) cpu() float64 {
	used := 0.0
	for line := range strings.Lines(s.do("INFO", "cpu").(string)) {
		var seconds float64
		for _, name := range []string{"used_cpu_sys:", "used_cpu_user:"} {
			if _, err := fmt.Sscanf(line, name+"%f", &seconds); err == nil {
				used += seconds
			}
		}
	}
	return used
}

func (s *redisServer) meta(queue, field string) int {
	number, _ := s.client.HGet(ctx, "dueq:{"+queue+"}:meta", field).Int()
	return number
}

// acked waits until so many messages of a queue are acked.
func (s *redisServer) acked(queue string, number int) {
	s.t.Helper()
	until(s.t, fmt.Sprintf("%d messages are acked", number), func() bool { return s.meta(queue, "acked") == number })
}

func connected(t testing.TB, url string) *Client {
	t.Helper()
	client, err := Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// until waits until a condition holds that no event tells of.
func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * limit); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it does not become true that %s", what)
		}
	}
}

// receive waits for an event of a test.
func receive[T any](t testing.TB, events <-chan T) T {
	t.Helper()
	select {
	case event := <-events:
		return event
	case <-time.After(limit):
		t.Fatal("the event does not come")
		panic("unreachable")
	}
}

// start runs a worker, and returns what stops it and waits for its end.
func startWorker(t testing.TB, worker *Worker) (stop func()) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		worker.Stop()
		if err := receive(t, ended); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func mustPush(t testing.TB, queue *Queue, payload string, options ...Option) Receipt {
	t.Helper()
	receipt, err := queue.Push(ctx, []byte(payload), options...)
	if err != nil {
		t.Fatal(err)
	}
	return receipt
}

func mustPushMany(t testing.TB, queue *Queue, messages []Message) {
	t.Helper()
	for _, one := range queue.PushMany(ctx, messages) {
		if one.Err != nil || !one.Created() {
			t.Fatalf("%+v", one)
		}
	}
}

// numbered makes messages that become due in steps.
func numbered(prefix string, count int, first, step time.Duration) []Message {
	var messages []Message
	for n := range count {
		id := fmt.Sprint(prefix, n)
		messages = append(messages, NewMessage([]byte(id), ID(id), Delay(first+time.Duration(n)*step)))
	}
	return messages
}

// counter counts the runs of each id.
type counter struct {
	mu   sync.Mutex
	runs map[string]int
}

func (c *counter) add(id string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs == nil {
		c.runs = map[string]int{}
	}
	c.runs[id]++
	return c.runs[id]
}

func (c *counter) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.runs)
}

// once fails the test if an id has run twice.
func (c *counter) once(t testing.TB) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, runs := range c.runs {
		if runs != 1 {
			t.Errorf("%s has run %d times", id, runs)
		}
	}
}

func equal[T comparable](t testing.TB, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("got %v, want %v", got, want)
	}
}

// proxy passes bytes to a server. `lose` cuts the next connection whose call of a verb the server has answered.
// With `hold` new connections then wait for `resume`, so that a test can act before the repetition.
type proxy struct {
	listener net.Listener
	target   string

	mu   sync.Mutex
	sha  []byte
	lost chan struct{}
	gate chan struct{} // closed while connections are let through
}

func startProxy(t testing.TB, server *redisServer) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, target: server.address(), gate: make(chan struct{})}
	close(p.gate)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serve(client)
		}
	}()
	return p
}

func (p *proxy) url() string { return "redis://" + p.listener.Addr().String() + "/" }

func (p *proxy) lose(verb string, hold bool) (lost chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sha, p.lost = []byte(scripts()[verb].sha), make(chan struct{})
	if hold {
		p.gate = make(chan struct{})
	}
	return p.lost
}

func (p *proxy) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.gate)
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	p.mu.Lock()
	gate := p.gate
	p.mu.Unlock()
	<-gate
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	var mu sync.Mutex
	var lost chan struct{}
	go func() {
		defer server.Close()
		pass(client, server, func(data []byte) bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.sha != nil && bytes.Contains(data, p.sha) {
				mu.Lock()
				defer mu.Unlock()
				p.sha, lost = nil, p.lost
			}
			return true
		})
	}()
	pass(server, client, func([]byte) bool {
		mu.Lock()
		defer mu.Unlock()
		if lost != nil {
			close(lost)
		}
		return lost == nil
	})
}

func pass(from io.Reader, to io.Writer, allows func(data []byte) bool) {
	buffer := make([]byte, 1<<16)
	for {
		count, err := from.Read(buffer)
		if err != nil || !allows(buffer[:count]) {
			return
		}
		if _, err := to.Write(buffer[:count]); err != nil {
			return
		}
	}
}

// dueqProgram changes the partitions as an operator does.
func dueqProgram(t testing.TB) string {
	t.Helper()
	path := os.Getenv("DUEQ_PROGRAM")
	if path == "" {
		path = filepath.Join("..", "..", "target", "debug", "dueq")
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%s is missing: cargo build --package dueq-cli", path)
	}
	return path
}
