package dueq

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func nothing(context.Context, *Delivery) error { return nil }

func TestAWorkerWakesForEachDueTimeAndNoneIsEarly(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	client := connected(t, server.url())
	queue := client.Queue("q")
	var claims counter
	startWorker(t, client.Worker().Queue(queue, func(_ context.Context, delivery *Delivery) error {
		if time.Now().Before(delivery.Due) || string(delivery.Payload) != delivery.ID {
			t.Error(delivery.ID, delivery.Due, delivery.Payload)
		}
		claims.add(delivery.token)
		return nil
	}, Concurrency(200)))
	mustPushMany(t, queue, numbered("m", 100, 500*time.Millisecond, 40*time.Millisecond))
	server.acked("q", 100)
	if claims.len() < 10 { // one that only looked once a second would need five
		t.Error(claims.len(), "claims")
	}
}

func TestEachSettlementDoesWhatItSays(t *testing.T) {
	server := startServer(t)
	client := connected(t, server.url())
	queue := client.Queue("q")
	var seen counter
	handle := func(_ context.Context, delivery *Delivery) error {
		if seen.add(delivery.ID) > 1 {
			return nil
		}
		switch delivery.ID {
		case "bury":
			return fmt.Errorf("wrapped: %w", Bury("why not"))
		case "snooze":
			return Snooze(Delay(time.Minute))
		case "again":
			return Again(Due(time.Now().Add(time.Minute)))
		case "release":
			return Release()
		case "fail":
			return errors.New("no such order")
		case "panic":
			panic("at the disco")
		case "exit":
			runtime.Goexit()
		case "follow":
			return AckAnd(NewMessage([]byte("one"), Delay(time.Minute)), NewMessage([]byte("two"), ID("own"), Delay(time.Minute)))
		case "bad follow":
			return AckAnd(NewMessage(nil, ID("")))
		case "retry":
			return RetryAfter(errors.New("later\xff"), time.Minute)
		case "too long":
			return Snooze(Delay(200 * 365 * 24 * time.Hour))
		}
		return Ack()
	}
	ids := []string{
		"bury", "snooze", "again", "release", "fail", "panic", "exit", "follow", "bad follow", "retry", "too long", "plain",
	}
	for _, id := range ids {
		mustPush(t, queue, "", ID(id))
	}
	stop := startWorker(t, client.Worker().Queue(queue, handle, Backoff(Fixed(time.Minute))))
	server.acked("q", 3)
	until(t, "all are claimed", func() bool { return server.meta("q", "claimed") == len(ids)+1 })
	stop()
	for _, want := range []StoredMessage{
		{ID: "bury", State: Dead, Error: "why not"},
		{ID: "snooze", State: Scheduled},
		{ID: "again", State: Scheduled},
		{ID: "fail", State: Scheduled, Error: "no such order", Failures: 1},
		{ID: "panic", State: Scheduled, Error: "panic: at the disco", Failures: 1},
		{ID: "exit", State: Scheduled, Error: errLeft.Error(), Failures: 1},
		{ID: "retry", State: Scheduled, Error: "later", Failures: 1},
		{ID: "{follow}/1", State: Scheduled},
		{ID: "own", State: Scheduled},
	} {
		stored, err := queue.Get(ctx, want.ID)
		if err != nil || stored == nil {
			t.Fatal(want.ID, err)
		}
		equal(t, fmt.Sprint(stored.ID, stored.State, stored.Error, stored.Failures), fmt.Sprint(want.ID, want.State, want.Error, want.Failures))
	}
	for id, reason := range map[string]string{"too long": "the delay is", "bad follow": "an id has 1 to 200 bytes"} {
		stored, err := queue.Get(ctx, id)
		if err != nil || stored == nil || stored.Failures != 1 || !strings.Contains(stored.Error, reason) {
			t.Errorf("%s: %+v %v", id, stored, err)
		}
	}
}

func TestFailuresAreRetriedWithBackoffUntilTheLimit(t *testing.T) {
	server := startServer(t)
	client := connected(t, server.url())
	queue := client.Queue("q")
	type try struct {
		attempt int
		isLast  bool
		at      time.Time
	}
	tries := make(chan try, 10)
	handle := func(_ context.Context, delivery *Delivery) error {
		tries <- try{delivery.Attempt, delivery.IsLastAttempt, time.Now()}
		return errors.New("no")
	}
	mustPush(t, queue, "", MaxAttempts(3))
	startWorker(t, client.Worker().Queue(queue, handle, Backoff(Fixed(100*time.Millisecond))))
	until(t, "it is dead", func() bool { return server.meta("q", "died") == 1 })
	var before time.Time
	for number := range 3 {
		one := receive(t, tries)
		equal(t, one.attempt, number+1)
		equal(t, one.isLast, number == 2)
		if one.at.Sub(before) < 100*time.Millisecond {
			t.Error("too early")
		}
		before = one.at
	}
	equal(t, len(tries), 0)
}

func TestRetryDelaysGrowUpToTheMost(t *testing.T) {
	retry := Exponential(time.Second, 5*time.Second)
	for attempt, full := range map[int]time.Duration{1: 1, 2: 2, 3: 4, 4: 5, 5: 5, 1_000_000: 5} {
		if delay := retry(attempt); delay < full*time.Second/2 || delay > full*time.Second {
			t.Error(attempt, delay)
		}
	}
}

func TestAThrottledQueueStartsNothingUntilItOpens(t *testing.T) {
	server := startServer(t)
	client := connected(t, server.url())
	queue := client.Queue("q")
	starts := make(chan time.Time, 10)
	var seen counter
	handle := func(context.Context, *Delivery) error {
		starts <- time.Now()
		if seen.add("") == 1 {
			return Throttle(300 * time.Millisecond)
		}
		return nil
	}
	mustPushMany(t, queue, numbered("m", 5, 0, 0))
	startWorker(t, client.Worker().Queue(queue, handle, Concurrency(1)))
	server.acked("q", 5)
	first := receive(t, starts)
	if pause := receive(t, starts).Sub(first); pause < 290*time.Millisecond {
		t.Error(pause)
	}
}

func TestALongHandlerKeepsItsLease(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	client := connected(t, server.url())
	queue := client.Queue("q")
	mustPush(t, queue, "")
	startWorker(t, client.Worker().Queue(queue, func(context.Context, *Delivery) error {
		time.Sleep(1_500 * time.Millisecond)
		return nil
	}, Lease(600*time.Millisecond)))
	server.acked("q", 1)
	equal(t, server.meta("q", "claimed"), 1)
}

func TestASettlementThatIsDeniedForAMomentIsRepeated(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	rights := func(words ...any) { server.do(append([]any{"ACL", "SETUSER", "worker"}, words...)...) }
	rights("on", ">secret", "~*", "&*", "+@all")
	client := connected(t, strings.Replace(server.url(), "//", "//worker:secret@", 1))
	queue := client.Queue("q")
	mustPush(t, queue, "")
	startWorker(t, client.Worker().Queue(queue, func(context.Context, *Delivery) error {
		rights("-evalsha", "-eval")
		return nil
	}, Lease(20*time.Second)))
	denied := regexp.MustCompile(`NOPERM:count=(\d+)`)
	until(t, "calls are denied", func() bool {
		found := denied.FindStringSubmatch(server.do("INFO", "errorstats").(string))
		return found != nil && len(found[1]) > 1 // ten or more
	})
	rights("+evalsha", "+eval")
	server.acked("q", 1)
	equal(t, server.meta("q", "claimed"), 1)
}

func TestAHandlerWhoseLeaseIsEndedIsCancelledAndSettlesNothing(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	client := connected(t, server.url())
	queue := client.Queue("q")
	causes := make(chan error, 1)
	handle := func(ctx context.Context, delivery *Delivery) error {
		if delivery.Attempt > 1 {
			return nil
		}
		sum := sha1.Sum([]byte(delivery.token))
		ended, err := queue.router.partition(home).call(context.Background(), "reap", "", "ids", "a", hex.EncodeToString(sum[:])[:16])
		if err != nil {
			t.Error(err)
		} else if texts, _ := ended.texts(0); !strings.HasPrefix(texts[0], "SCHEDULED") {
			t.Error(ended.body)
		}
		<-ctx.Done()
		if !delivery.IsLost() {
			t.Error("the delivery does not know that it is lost")
		}
		causes <- context.Cause(ctx)
		return nil
	}
	mustPush(t, queue, "", ID("a"))
	startWorker(t, client.Worker().Queue(queue, handle, Lease(600*time.Millisecond)))
	equal(t, receive(t, causes), ErrLeaseLost)
	server.acked("q", 1)
	equal(t, server.meta("q", "claimed"), 2)
}

func TestATimeLimitEndsTheContextOfAHandler(t *testing.T) {
	server := startServer(t)
	client := connected(t, server.url())
	queue := client.Queue("q")
	mustPush(t, queue, "", ID("a"), MaxAttempts(1))
	startWorker(t, client.Worker().Queue(queue, func(ctx context.Context, _ *Delivery) error {
		<-ctx.Done()
		return ctx.Err()
	}, TimeLimit(50*time.Millisecond)))
	until(t, "it is dead", func() bool { return server.meta("q", "died") == 1 })
	stored, err := queue.Get(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	equal(t, stored.Error, "the time limit of 50ms has passed: context deadline exceeded")
}

func TestAGrantWhoseReplyIsLostIsFoundByHeld(t *testing.T) {
	server := startServer(t)
	proxy := startProxy(t, server)
	client := connected(t, proxy.url())
	queue := client.Queue("q")
	startWorker(t, client.Worker().Queue(queue, func(_ context.Context, delivery *Delivery) error {
		if delivery.Attempt != 1 {
			t.Error("a crash was charged")
		}
		return nil
	}, Lease(20*time.Second)))
	mustPush(t, queue, "", ID("first"))
	server.acked("q", 1)
	lost := proxy.lose("claim", false)
	mustPush(t, queue, "", ID("a"), Delay(200*time.Millisecond))
	receive(t, lost)
	server.acked("q", 2)
	equal(t, server.meta("q", "claimed"), 2)
}

func TestAnAckWhoseReplyIsLostIsRepeated(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	proxy := startProxy(t, server)
	client := connected(t, proxy.url())
	queue := client.Queue("q")
	var runs counter
	startWorker(t, client.Worker().Queue(queue, func(_ context.Context, delivery *Delivery) error {
		runs.add(delivery.ID)
		return nil
	}, Lease(time.Second)))
	mustPush(t, queue, "", ID("first"))
	server.acked("q", 1)
	lost := proxy.lose("ack", false)
	mustPush(t, queue, "", ID("a"))
	receive(t, lost)
	time.Sleep(2 * time.Second) // longer than the lease: a second delivery would have come
	runs.once(t)
	equal(t, runs.len(), 2)
}

// Kills, freezes and cut connections while 600 messages become due.
func TestFaultsOfTheServerLoseAndDoubleNothing(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	client := connected(t, server.url())
	queue := client.Queue("q")
	var runs counter
	startWorker(t, client.Worker().Queue(queue, func(_ context.Context, delivery *Delivery) error {
		if time.Now().UnixMilli() < delivery.Due.UnixMilli() {
			t.Error("early:", delivery.ID)
		}
		runs.add(delivery.ID)
		return nil
	}, Lease(20*time.Second)))
	mustPushMany(t, queue, numbered("m", 600, 0, 10*time.Millisecond))
	for _, fault := range []string{"cut", "kill", "freeze", "cut", "kill"} {
		time.Sleep(800 * time.Millisecond)
		switch fault {
		case "cut":
			server.do("CLIENT", "KILL", "TYPE", "normal")
			server.do("CLIENT", "KILL", "TYPE", "pubsub")
		case "kill":
			server.kill()
			server.start()
		case "freeze":
			server.freeze()
			time.Sleep(time.Second)
			server.signal(syscall.SIGCONT)
		}
	}
	until(t, "all have run", func() bool { return runs.len() == 600 })
	server.acked("q", 600)
	runs.once(t)
}

func TestStoppingEndsHandlersAndReleasesWhatDoesNotEnd(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	client := connected(t, server.url())
	queue := client.Queue("q")
	began, causes, forever := make(chan string, 3), make(chan error, 2), make(chan struct{})
	defer close(forever)
	handle := func(ctx context.Context, delivery *Delivery) error {
		began <- delivery.ID
		switch delivery.ID {
		case "short":
			time.Sleep(200 * time.Millisecond)
		case "long":
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return ctx.Err()
		case "stubborn":
			<-forever
		}
		return nil
	}
	for _, id := range []string{"short", "long", "stubborn"} {
		mustPush(t, queue, "", ID(id))
	}
	stop := startWorker(t, client.Worker(Grace(500*time.Millisecond)).Queue(queue, handle))
	for range 3 {
		receive(t, began)
	}
	stopped := time.Now()
	stop()
	if took := time.Since(stopped); took > 5*time.Second {
		t.Error("stopping took", took)
	}
	equal(t, receive(t, causes), ErrStopped)
	stored, err := queue.Get(ctx, "short")
	if stored != nil || err != nil {
		t.Error(stored, err)
	}
	for _, id := range []string{"long", "stubborn"} {
		stored, err := queue.Get(ctx, id)
		if err != nil || stored == nil {
			t.Fatal(id, err)
		}
		equal(t, fmt.Sprint(stored.State, stored.Failures, stored.Crashes), "scheduled0 0")
	}
	equal(t, server.do("ZCARD", "dueq:{q}:nodes").(int64), 1) // the placeholder
}

func TestAWorkerEndsWithItsContextAndRunsOnce(t *testing.T) {
	server := startServer(t)
	client := connected(t, server.url())
	queue := client.Queue("q")
	mustPush(t, queue, "")
	running, end := context.WithCancel(ctx)
	worker := client.Worker().Queue(queue, func(context.Context, *Delivery) error {
		end()
		time.Sleep(200 * time.Millisecond)
		return nil
	})
	equal(t, worker.Run(running), nil)
	equal(t, server.meta("q", "acked"), 1)
	if err := worker.Run(ctx); !errors.Is(err, KindInvalidInput) || !strings.Contains(err.Error(), "make a new one") {
		t.Error(err)
	}
}

func TestABusyQueueDoesNotDelayAnother(t *testing.T) {
	server := startServer(t)
	client := connected(t, server.url())
	slow, quick := client.Queue("slow"), client.Queue("quick")
	done := make(chan struct{})
	mustPushMany(t, slow, numbered("m", 50, 0, 0))
	worker := client.Worker(Grace(0)).Queue(slow, func(ctx context.Context, _ *Delivery) error {
		<-ctx.Done()
		return ctx.Err()
	}, Concurrency(4)).Queue(quick, func(context.Context, *Delivery) error { close(done); return nil }, Concurrency(1))
	startWorker(t, worker)
	until(t, "4 are claimed", func() bool { return server.meta("slow", "claimed") == 4 })
	mustPush(t, quick, "")
	receive(t, done)
}

func TestAnIdleWorkerOnlyBeatsAndWaits(t *testing.T) {
	server := startServer(t)
	client := connected(t, server.url())
	queue := client.Queue("q")
	mustPush(t, queue, "", Delay(time.Hour))
	startWorker(t, client.Worker().Queue(queue, nothing))
	time.Sleep(time.Second)
	scripts, pops := server.calls("evalsha"), server.calls("blpop")
	time.Sleep(3 * time.Second)
	if calls := server.calls("evalsha") - scripts; calls > 5 { // a beat each 0.9 s
		t.Error(calls, "scripts")
	}
	if calls := server.calls("blpop") - pops; calls > 4 {
		t.Error(calls, "pops")
	}
}

func TestTwoWorkersShareTheMessagesAndTakeOver(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	var by counter
	start := func(name string) (*Queue, func()) {
		client := connected(t, server.url())
		queue := client.Queue("q")
		return queue, startWorker(t, client.Worker().Queue(queue, func(context.Context, *Delivery) error {
			by.add(name)
			time.Sleep(10 * time.Millisecond)
			return nil
		}, Concurrency(4)))
	}
	queue, _ := start("one")
	_, stop := start("two")
	mustPushMany(t, queue, numbered("m", 400, 100*time.Millisecond, 2_500*time.Microsecond))
	server.acked("q", 400)
	if by.runs["one"] < 20 || by.runs["two"] < 20 {
		t.Error(by.runs)
	}
	stop()
	began := time.Now()
	mustPush(t, queue, "", Delay(200*time.Millisecond))
	server.acked("q", 401)
	if took := time.Since(began); took > 2*time.Second {
		t.Error(took)
	}
}

func TestAnOutageIsLoggedOnceAndItsEndToo(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	client := connected(t, server.url())
	var mu sync.Mutex
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(writer(func(line []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return text.Write(line)
	}), nil))
	logged := func(what string) int {
		mu.Lock()
		defer mu.Unlock()
		return strings.Count(text.String(), what)
	}
	queue := client.Queue("q")
	startWorker(t, client.Worker(Logger(log)).Queue(queue, nothing))
	mustPush(t, queue, "")
	server.acked("q", 1)
	server.kill()
	until(t, "the outage is logged", func() bool { return logged("is tried again") == 1 })
	time.Sleep(500 * time.Millisecond)
	server.start()
	until(t, "the end is logged", func() bool { return logged("redis answers again") == 1 })
	equal(t, logged("is tried again"), 1)
}

type writer func([]byte) (int, error)

func (w writer) Write(line []byte) (int, error) { return w(line) }
