package dueq

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestResultsOfEachCallInEachState(t *testing.T) {
	server := startServer(t)
	queue := connected(t, server.url()).Queue("orders")
	due := time.Now().Add(time.Hour)
	receipt := mustPush(t, queue, "rate it", ID("order:42"), Due(due), MaxAttempts(5), Cost(2))
	equal(t, receipt, Receipt{ID: "order:42", Outcome: Created})
	again := mustPush(t, queue, "rate it", ID("order:42"))
	equal(t, again, Receipt{ID: "order:42", Outcome: Exists, State: Scheduled})
	stored, err := queue.Get(ctx, "order:42")
	if err != nil || stored == nil {
		t.Fatal(stored, err)
	}
	equal(t, string(stored.Payload), "rate it")
	equal(t, [2]int{stored.MaxAttempts, stored.Cost}, [2]int{5, 2})
	if early := due.Sub(stored.Time); early > 0 || early < -time.Millisecond {
		t.Errorf("due %s earlier", early)
	}
	moved, err := queue.RescheduleFrom(ctx, "order:42", stored.Time, Delay(time.Minute))
	equal(t, moved.Outcome, Moved)
	equal(t, err, nil)
	conflict, _ := queue.RescheduleFrom(ctx, "order:42", time.UnixMilli(1), Due(due))
	equal(t, conflict.Outcome, DueConflict)
	equal(t, conflict.Due, moved.Due)
	plain, _ := queue.Reschedule(ctx, "order:42", Delay(time.Hour))
	equal(t, plain.Outcome, Moved)
	replaced := mustPush(t, queue, "other", ID("order:42"), Delay(9*time.Second), OnConflict(Replace))
	equal(t, replaced.Outcome, Moved)
	for _, want := range []Outcome{Moved, DueAlready} {
		now, err := queue.RunNow(ctx, "order:42")
		equal(t, now, want)
		equal(t, err, nil)
	}
	for id, want := range map[string]Outcome{"order:42": Cancelled, "none": IsAbsent} {
		found, err := queue.Cancel(ctx, id)
		equal(t, found, want)
		equal(t, err, nil)
	}
	end, err := queue.EndOf(ctx, "order:42")
	if err != nil || end == nil {
		t.Fatal(end, err)
	}
	equal(t, end.Kind, EndCancelled)
	stored, err = queue.Get(ctx, "order:42")
	if err != nil || stored != nil {
		t.Fatal(stored, err)
	}
}

func TestIdsAndPayloadsAreAnyBytes(t *testing.T) {
	server := startServer(t)
	queue := connected(t, server.url()).Queue("die größte, Nr. 1")
	var payload []byte
	for n := range 256 {
		payload = append(payload, byte(n))
	}
	payload = append(payload, "\r\n"...)
	for _, id := range []string{"größe", "🦀", "a b", "\xff\xfe", strings.Repeat("x", 200)} {
		receipt := mustPush(t, queue, string(payload), ID(id))
		equal(t, receipt.ID, id)
		stored, err := queue.Get(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, string(stored.Payload), string(payload))
	}
	for _, id := range []string{"", "a\n", "\x00", strings.Repeat("x", 201)} {
		_, err := queue.Push(ctx, nil, ID(id))
		if !errors.Is(err, KindInvalidInput) {
			t.Errorf("%q: %v", id, err)
		}
	}
	_, err := connected(t, server.url()).Queue("a/b").Push(ctx, nil)
	if !errors.Is(err, KindInvalidInput) {
		t.Error(err)
	}
}

func TestCallsUnderWayGatherWhatComesMeanwhile(t *testing.T) {
	server := startServer(t)
	queue := connected(t, server.url()).Queue("many")
	mustPush(t, queue, "")
	before := server.calls("evalsha")
	var all sync.WaitGroup
	for n := range 1_000 {
		all.Add(1)
		go func() {
			defer all.Done()
			receipt, err := queue.Push(ctx, []byte("x"), ID(fmt.Sprint("a", n)))
			if err != nil || !receipt.Created() {
				t.Error(receipt, err)
			}
		}()
	}
	all.Wait()
	if calls := server.calls("evalsha") - before; calls > 100 {
		t.Errorf("1,000 pushes took %d calls", calls)
	}
	many := queue.PushMany(ctx, []Message{
		NewMessage([]byte("x"), ID("a1")), NewMessage(make([]byte, 1<<20+1)), NewMessage([]byte("x"), ID("new")), {},
	})
	equal(t, many[0].Outcome, Exists)
	var failure *Error
	if !errors.As(many[1].Err, &failure) || failure.Code != "TOO_LARGE" {
		t.Error(many[1].Err)
	}
	equal(t, many[2].Created(), true)
	if !errors.Is(many[3].Err, KindInvalidInput) {
		t.Error(many[3].Err)
	}
}

func TestAPushWhoseReplyIsLostStoresOneMessage(t *testing.T) {
	server := startServer(t)
	proxy := startProxy(t, server)
	queue := connected(t, proxy.url()).Queue("q")
	mustPush(t, queue, "", ID("first"))
	lost := proxy.lose("push", false)
	receipt := mustPush(t, queue, "x", ID("a"), Delay(time.Minute))
	receive(t, lost)
	equal(t, receipt, Receipt{ID: "a", Outcome: Exists, State: Scheduled})
	equal(t, server.meta("q", "pushed"), 2)
}

func TestAPushWhoseMessageEndedBeforeTheRepetitionIsFinished(t *testing.T) {
	server := startServer(t)
	proxy := startProxy(t, server)
	queue, other := connected(t, proxy.url()).Queue("q"), connected(t, server.url()).Queue("q")
	mustPush(t, queue, "", ID("first"))
	lost := proxy.lose("push", true)
	receipts := make(chan Receipt, 1)
	go func() { receipts <- mustPush(t, queue, "x", ID("a"), Delay(time.Second)) }()
	receive(t, lost)
	if found, err := other.Cancel(ctx, "a"); found != Cancelled || err != nil {
		t.Error(found, err)
	}
	proxy.resume()
	equal(t, receive(t, receipts).Outcome, Finished)
	equal(t, server.meta("q", "pushed"), 2)
}

func TestAReplacementWhoseReplyIsLostIsReportedAsUnknown(t *testing.T) {
	server := startServer(t)
	proxy := startProxy(t, server)
	queue := connected(t, proxy.url()).Queue("q")
	mustPush(t, queue, "", ID("a"), OnConflict(Replace))
	proxy.lose("upsert", false)
	_, err := queue.Push(ctx, []byte("x"), ID("a"), OnConflict(Replace))
	var failure *Error
	if !errors.As(err, &failure) {
		t.Fatal(err)
	}
	equal(t, failure.Applied, AppliedUnknown)
	equal(t, failure.ID, "a")
	equal(t, failure.Retryable(), true)
}

func TestARepeatedCancelSparesTheMessageThatWasPushedSince(t *testing.T) {
	server := startServer(t)
	proxy := startProxy(t, server)
	queue, other := connected(t, proxy.url()).Queue("q"), connected(t, server.url()).Queue("q")
	if _, err := queue.Cancel(ctx, "none"); err != nil {
		t.Fatal(err)
	}
	mustPush(t, queue, "", ID("a"), Delay(time.Minute))
	lost := proxy.lose("cancel", true)
	outcomes := make(chan Outcome, 1)
	go func() {
		found, err := queue.Cancel(ctx, "a")
		if err != nil {
			t.Error(err)
		}
		outcomes <- found
	}()
	receive(t, lost)
	mustPush(t, other, "new", ID("a"), Delay(time.Minute))
	proxy.resume()
	equal(t, receive(t, outcomes), Cancelled)
	stored, err := queue.Get(ctx, "a")
	if err != nil || stored == nil {
		t.Fatal(err)
	}
	equal(t, string(stored.Payload), "new")
}

func TestCallsGoOnAfterAKillAndAFreeze(t *testing.T) {
	server := startServer(t)
	queue := connected(t, server.url()).Queue("q")
	mustPush(t, queue, "", ID("before"))
	server.kill()
	receipts := make(chan Receipt, 1)
	go func() { receipts <- mustPush(t, queue, "", ID("during"), Delay(time.Minute)) }()
	time.Sleep(200 * time.Millisecond)
	server.start()
	equal(t, receive(t, receipts).Created(), true)
	server.freeze()
	go func() { receipts <- mustPush(t, queue, "", ID("frozen"), Delay(time.Minute)) }()
	time.Sleep(300 * time.Millisecond)
	server.signal(syscall.SIGCONT)
	equal(t, receive(t, receipts).ID, "frozen")
}

func TestErrorsSayWhetherTheCallWasApplied(t *testing.T) {
	defer func(before time.Duration) { patienceLimit = before }(patienceLimit)
	patienceLimit = 300 * time.Millisecond
	server := startServer(t)
	failureOf := func(url, queue string) Error {
		t.Helper()
		client, err := Connect(url)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		_, err = client.Queue(queue).Push(ctx, nil, ID("a"))
		var failure *Error
		if !errors.As(err, &failure) {
			t.Fatal(err)
		}
		if strings.Contains(err.Error(), "hidden") || strings.Contains(err.Error(), "secret") {
			t.Errorf("the text has the password: %v", err)
		}
		return Error{Kind: failure.Kind, Applied: failure.Applied, Code: failure.Code}
	}
	withUser := func(user string) string { return strings.Replace(server.url(), "//", "//"+user+"@", 1) }
	server.do("SET", "dueq:{taken}:scheduled", "x")
	equal(t, failureOf(server.url(), "taken"), Error{Kind: KindServer, Applied: AppliedNo, Code: "WRONGTYPE"})
	mustPush(t, connected(t, server.url()).Queue("later"), "")
	server.do("HSET", "dueq:{later}:meta", "layout", 99)
	equal(t, failureOf(server.url(), "later"), Error{Kind: KindUnsupported, Applied: AppliedNo, Code: "LAYOUT"})
	server.do("ACL", "SETUSER", "poor", "on", ">secret", "~*", "&*", "+info")
	equal(t, failureOf(withUser("poor:secret"), "q"), Error{Kind: KindDenied, Applied: AppliedNo, Code: "NOPERM"})
	equal(t, failureOf(withUser("poor:hidden"), "q"), Error{Kind: KindDenied, Applied: AppliedNo, Code: "WRONGPASS"})
	server.do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	equal(t, failureOf(server.url(), "q"), Error{Kind: KindUnsupported, Applied: AppliedNo})
	server.do("CONFIG", "SET", "maxmemory-policy", "noeviction")
	server.do("CONFIG", "SET", "maxmemory", 1)
	equal(t, failureOf(server.url(), "q"), Error{Kind: KindFull, Applied: AppliedNo, Code: "OOM"})
	server.kill()
	equal(t, failureOf(server.url(), "q"), Error{Kind: KindUnavailable, Applied: AppliedNo})
}

func TestBadURLsAreRefusedWithoutTheirPassword(t *testing.T) {
	for _, url := range []string{
		"http://host/", "redis+ring://host/", "redis://:secret@host:port/", "redis+cluster://:secret@a:b",
		"redis+sentinel://a:26379", "redis+cluster://%zz:secret@a:1", "redis+sentinel://a/orders/x",
	} {
		_, err := Connect(url)
		if !errors.Is(err, KindInvalidInput) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestACallerThatLeavesLeavesTheBatchToTheOthers(t *testing.T) {
	server := startServer(t)
	queue := connected(t, server.url()).Queue("q")
	mustPush(t, queue, "")
	server.freeze()
	leaving, leave := context.WithCancel(ctx)
	left := make(chan error, 2)
	push := func(ctx context.Context, id string) {
		_, err := queue.Push(ctx, nil, ID(id), Delay(time.Minute))
		left <- err
	}
	go push(leaving, "sent")
	lane := queue.router.lane(laneKey{tag: home, verb: "push"})
	until(t, "a call is under way", func() bool { lane.mu.Lock(); defer lane.mu.Unlock(); return lane.calls == 1 })
	go push(leaving, "waiting")
	stays := make(chan Receipt, 1)
	go func() { stays <- mustPush(t, queue, "", ID("stays"), Delay(time.Minute)) }()
	until(t, "two items wait", func() bool { lane.mu.Lock(); defer lane.mu.Unlock(); return len(lane.waiting) == 2 })
	leave()
	applied := map[Applied]bool{}
	for range 2 {
		err := receive(t, left)
		var failure *Error
		if !errors.Is(err, context.Canceled) || !errors.As(err, &failure) {
			t.Fatal(err)
		}
		applied[failure.Applied] = true
	}
	equal(t, applied[AppliedNo] && applied[AppliedUnknown], true)
	server.signal(syscall.SIGCONT)
	equal(t, receive(t, stays).ID, "stays")
	for id, isThere := range map[string]bool{"sent": true, "waiting": false} {
		stored, err := queue.Get(ctx, id)
		if err != nil || (stored != nil) != isThere {
			t.Error(id, stored, err)
		}
	}
}

func TestAClosedClientRefusesCalls(t *testing.T) {
	client := connected(t, startServer(t).url())
	queue := client.Queue("q")
	mustPush(t, queue, "")
	client.Close()
	client.Close()
	for _, err := range []error{
		func() error { _, err := queue.Push(ctx, nil); return err }(),
		func() error { _, err := queue.Get(ctx, "a"); return err }(),
		client.Worker().Queue(queue, nothing).Run(ctx),
	} {
		if !errors.Is(err, KindInvalidInput) || !strings.Contains(err.Error(), "closed") {
			t.Error(err)
		}
	}
}

func TestAnErrorOfBadInputShowsTheValueAndTheRule(t *testing.T) {
	for text, options := range map[string][]Option{
		`message id "é\x00" of 3 bytes: an id has 1 to 200 bytes, none of them a control byte`: {ID("é\x00")},
		"a message has a delay or a due time, not both":                                        {Delay(time.Second), Due(time.Now())},
		"on_conflict is new, it must be one of keep, reschedule, replace, next":                {OnConflict("new")},
		"cost is 0, it must be a whole number from 1 to 1000000":                               {Cost(0)},
	} {
		var failure *Error
		if err := NewMessage(nil, options...).err; !errors.As(err, &failure) || failure.Text != text {
			t.Errorf("%v, not %s", err, text)
		}
		equal(t, failure.Kind, KindInvalidInput)
	}
}

func TestAServerThatIsNotThereIsNamed(t *testing.T) {
	client := connected(t, "redis://127.0.0.1:1/")
	_, err := client.servers.one.call(ctx, false, "PING")
	if err == nil || !strings.HasPrefix(err.Error(), "dueq: cannot reach redis at 127.0.0.1:1: ") {
		t.Error(err)
	}
}
