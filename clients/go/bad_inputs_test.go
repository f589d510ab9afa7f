package dueq

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// refused fails the test unless the error is of this kind, was not applied, and says what to do.
func refused(t testing.TB, err error, kind ErrorKind, code, hint string) {
	t.Helper()
	var failure *Error
	if !errors.As(err, &failure) {
		t.Errorf("%s: no error of this library: %v", hint, err)
		return
	}
	if failure.Kind != kind || failure.Applied != AppliedNo || failure.Code != code {
		t.Errorf("%s: %s, applied %s, code %q", hint, failure.Kind, failure.Applied, failure.Code)
	}
	if text := err.Error(); !strings.Contains(text, hint) || strings.Contains(text, "secret") || strings.Contains(text, "wrong@") {
		t.Errorf("the text has no %q, or a password: %s", hint, text)
	}
}

func pushed(queue *Queue, options ...Option) error {
	_, err := queue.Push(ctx, nil, options...)
	return err
}

func TestARefusalHasItsCodeAndSaysWhatToDo(t *testing.T) {
	// Each with what was done to the server, and the user of the client.
	for name, one := range map[string]struct {
		commands   []string
		user       string
		kind       ErrorKind
		code, hint string
	}{
		"a wrong type": {
			[]string{"DEL dueq:{q}:scheduled", "SET dueq:{q}:scheduled x"}, "", KindServer, "WRONGTYPE", "`dueq doctor QUEUE`",
		},
		"a layout from the future": {
			[]string{"HSET dueq:{q}:meta layout 99"}, "", KindUnsupported, "LAYOUT", "install a newer version",
		},
		"no right":         {nil, "poor:secret@", KindDenied, "NOPERM", "`dueq acl ROLE QUEUE`"},
		"a wrong password": {nil, "poor:wrong@", KindDenied, "WRONGPASS", "give user and password in the URL"},
		"no password": {
			[]string{"ACL SETUSER default resetpass >secret"}, "", KindDenied, "NOAUTH", "give user and password in the URL",
		},
		"an evicting server": {
			[]string{"CONFIG SET maxmemory-policy allkeys-lru"}, "", KindUnsupported, "", "set noeviction",
		},
		"a full server": {[]string{"CONFIG SET maxmemory 1"}, "", KindFull, "OOM", "raise maxmemory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := startServer(t)
			mustPush(t, connected(t, server.url()).Queue("q"), "")
			for _, command := range append(one.commands, "ACL SETUSER poor on >secret ~* &* +info") {
				words := strings.Fields(command)
				all := make([]any, len(words))
				for at, word := range words {
					all[at] = word
				}
				server.do(all...)
			}
			client := connected(t, strings.Replace(server.url(), "//", "//"+one.user, 1))
			refused(t, pushed(client.Queue("q"), ID("a")), one.kind, one.code, one.hint)
		})
	}
}

func TestAServerThatIsTooOldIsRefused(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go answerAsRedis6(connection)
		}
	}()
	queue := connected(t, "redis://"+listener.Addr().String()+"/").Queue("q")
	refused(t, pushed(queue), KindUnsupported, "", "version 6.2.14, and dueq needs Redis 7.0")
}

func answerAsRedis6(connection net.Conn) {
	defer connection.Close()
	const info = "redis_version:6.2.14\r\n"
	reader := bufio.NewReader(connection)
	for {
		var words int
		if _, err := fmt.Fscanf(reader, "*%d\r\n", &words); err != nil {
			return
		}
		command := ""
		for at := range words {
			var length int
			if _, err := fmt.Fscanf(reader, "$%d\r\n", &length); err != nil {
				return
			}
			word := make([]byte, length+2)
			if _, err := io.ReadFull(reader, word); err != nil {
				return
			}
			if at == 0 {
				command = strings.ToUpper(string(word[:length]))
			}
		}
		answer := "-ERR unknown command\r\n"
		if command == "INFO" {
			answer = fmt.Sprintf("$%d\r\n%s\r\n", len(info), info)
		}
		if _, err := io.WriteString(connection, answer); err != nil {
			return
		}
	}
}

func TestAServerThatIsAwayIsUnavailable(t *testing.T) {
	defer func(before time.Duration) { patienceLimit = before }(patienceLimit)
	patienceLimit = 300 * time.Millisecond
	server := startServer(t)
	server.kill()
	err := pushed(connected(t, server.url()).Queue("q"))
	refused(t, err, KindUnavailable, "", server.address())
	equal(t, asError(err).Retryable(), true)
}

func TestBadURLsAreRefusedWithoutTheirPassword(t *testing.T) {
	for url, hint := range map[string]string{
		"http://host/":                     "it must be redis, rediss or unix",
		"redis+ring://host/":               "it must be redis, rediss or unix",
		"redis://:secret@host:port/":       "it is redis://USER:PASSWORD@HOST:PORT/DATABASE",
		"redis+cluster://:secret@a:b":      "HOST:PORT",
		"redis+sentinel://a:26379":         "/SERVICE[/DATABASE]",
		"redis+cluster://%zz:secret@a:1":   "percent-encoded",
		"redis+sentinel://a/orders/x":      "/SERVICE[/DATABASE]",
		"redis+sentinel://:secret@a/o?a=%": "percent-encoded",
	} {
		_, err := Connect(url)
		refused(t, err, KindInvalidInput, "", hint)
	}
}

// No server is asked: the URL names none.
func TestBadValuesAreRefusedBeforeTheyAreSent(t *testing.T) {
	client := connected(t, "redis://127.0.0.1:1/")
	queue := client.Queue("q")
	push := func(options ...Option) error { return pushed(queue, options...) }
	const id = "an id has 1 to 200 bytes, none of them a control byte"
	centuries := 200 * 365 * 24 * time.Hour
	_, errOfGet := queue.Get(ctx, "a\nb")
	_, errOfCancel := queue.Cancel(ctx, "")
	_, errOfReschedule := queue.Reschedule(ctx, "a", Delay(-time.Second))
	_, errOfApply := queue.Schedules("billing").Apply(ctx, make([]Schedule, 25))
	_, errOfStart := queue.Schedules("billing").Apply(ctx, []Schedule{{Name: "a", Start: time.UnixMilli(-1)}})
	for _, one := range []struct {
		err  error
		hint string
	}{
		{push(ID("")), id},
		{push(ID("\x00")), id},
		{push(ID("a\r\n")), id},
		{push(ID(strings.Repeat("x", 201))), id},
		{errOfGet, id},
		{errOfCancel, id},
		{pushed(client.Queue("a/b")), "queue name"},
		{push(Delay(-1 * time.Millisecond)), "it must be 0 to 3155760000000 (100 years)"},
		{push(Delay(centuries)), "it must be 0 to 3155760000000 (100 years)"},
		{errOfReschedule, "it must be 0 to 3155760000000 (100 years)"},
		{push(Due(time.UnixMilli(-1))), "a moment is from 1970 to the year 33000"},
		{push(Delay(time.Second), Due(time.Now())), "has a delay or a due time, not both"},
		{push(MaxAttempts(0)), "max_attempts is 0, it must be a whole number from 1 to 1000000"},
		{push(Cost(-1)), "cost is -1, it must be a whole number from 1 to 1000000"},
		{push(Window(0)), "window is 0, it must be a whole number from 1 to"},
		{push(TraceParent("00-x")), "not a W3C traceparent"},
		{push(OnConflict("merge")), "on_conflict is merge, it must be one of"},
		{push(Revive()), "revive needs on_conflict replace or next"},
		{push(MaxWait(time.Second)), "max_wait needs an on_conflict other than keep"},
		{push(OnExpire(ExpireDrop)), "set expires_after or expires_at too"},
		{push(ExpiresAfter(time.Second), ExpiresAt(time.Now())), "expires_after or expires_at, not both"},
		{pushed(queue.Durability(Replicated(0, time.Second))), "waits for nothing"},
		{pushed(queue.Durability(Replicated(1, time.Hour))), "it must be 1 ms to 1m0s"},
		{queue.PushMany(ctx, []Message{{}})[0].Err, "made by NewMessage"},
		{errOfApply, "make several sets of them"},
		{errOfStart, "a moment is from 1970 to the year 33000"},
	} {
		refused(t, one.err, KindInvalidInput, "", one.hint)
	}
	_, err := queue.Push(ctx, make([]byte, maxPayloadBytes+1))
	refused(t, err, KindInvalidInput, "TOO_LARGE", "no queue takes more than 16777216")
}

func TestAWorkerThatCannotRunSaysWhy(t *testing.T) {
	client := connected(t, "redis://127.0.0.1:1/")
	other, queue := connected(t, "redis://127.0.0.1:1/"), client.Queue("q")
	stopped, stop := context.WithCancel(ctx)
	stop()
	ran := client.Worker().Queue(queue, nothing)
	ran.isBegun = true
	for hint, worker := range map[string]*Worker{
		"make a new one":      ran,
		"no queue":            client.Worker(),
		"has queue q already": client.Worker().Queue(queue, nothing).Queue(queue, nothing),
		"it must be a whole number from 1 to 10000": client.Worker().Queue(queue, nothing, Concurrency(0)),
		"it must be 1 ms to 24h0m0s":                client.Worker().Queue(queue, nothing, Lease(25*time.Hour)),
		"queue name":                                client.Worker().Queue(client.Queue("a/b"), nothing),
		"q needs a handler":                         client.Worker().Queue(queue, nil),
		"queue q needs a handler":                   client.Worker().InBatches(queue, 2, time.Second, nil),
		"another client":                            other.Worker().Queue(queue, nothing),
		"give at least 1":                           client.Worker().InBatches(queue, 0, time.Second, noBatch),
		"third of the lease":                        client.Worker().InBatches(queue, 2, 11*time.Second, noBatch),
	} {
		refused(t, worker.Run(stopped), KindInvalidInput, "", hint)
	}
}

func TestAClosedClientRefusesCalls(t *testing.T) {
	client := connected(t, startServer(t).url())
	queue := client.Queue("q")
	mustPush(t, queue, "")
	client.Close()
	client.Close()
	_, errOfGet := queue.Get(ctx, "a")
	_, errOfList := queue.ListSchedules(ctx)
	for _, err := range []error{pushed(queue), errOfGet, errOfList, client.Worker().Queue(queue, nothing).Run(ctx)} {
		refused(t, err, KindInvalidInput, "", "the client is closed: make a new one")
	}
}

// An error that breaks whoever asks for its text.
type broken struct{}

func (*broken) Error() string { panic("no text") }

func TestAHandlerThatFailsInAnyWayIsRetriedWithWhatItSaid(t *testing.T) {
	server := startServer(t)
	client := connected(t, server.url())
	queue := client.Queue("q")
	var none *broken
	var nowhere map[string]int
	ways := map[string]struct {
		fail func() error
		text string
	}{
		"a value that is no text":   {func() error { return errors.New("a\x00b\r\n\xff") }, "a\x00b\r\n"},
		"an error without a text":   {func() error { return &broken{} }, "%!v(PANIC=Error method: no text)"},
		"a nil pointer as an error": {func() error { return none }, "<nil>"},
		"a panic with nil":          {func() error { panic(nil) }, "panic: panic called with nil argument"},
		"a panic with an error":     {func() error { panic(context.Canceled) }, "panic: context canceled"},
		"a fault of the program":    {func() error { nowhere["a"] = 1; return nil }, "panic: assignment to entry in nil map"},
		"a context that goes on":    {func() error { return context.Canceled }, "context canceled"},
	}
	for name := range ways {
		mustPush(t, queue, "", ID(name))
	}
	handle := func(_ context.Context, delivery *Delivery) error { return ways[delivery.ID].fail() }
	startWorker(t, client.Worker().Queue(queue, handle, Backoff(Fixed(time.Minute))))
	until(t, "all are retried", func() bool { return server.meta("q", "retried") == len(ways) })
	for name, way := range ways {
		if state := shown(t, queue, name); !strings.HasPrefix(state, "scheduled 1 "+way.text) {
			t.Errorf("%s: %s", name, state)
		}
	}
}

// The clock of the machine may be an hour off: it names ids, and nothing is due, late or lost by it.
func TestNothingIsDecidedByTheClockOfTheMachine(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	reads := map[string]int{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if count := strings.Count(string(text), "time.Now"); count > 0 {
			reads[file] = count
		}
	}
	equal(t, fmt.Sprint(reads), "map[clock.go:1 message.go:1]") // the start of the monotonic clock, and the ids
}
