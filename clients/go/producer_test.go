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

func TestTheMessagesOfOneCallerShareACall(t *testing.T) {
	server := startServer(t)
	queue := connected(t, server.url()).Queue("q")
	mustPush(t, queue, "")
	before := server.calls("evalsha")
	for round := range 20 {
		mustPushMany(t, queue, numbered(fmt.Sprint(round, "-"), 100, 0, 0))
	}
	equal(t, server.calls("evalsha")-before, 20)
}

func TestManyCallersOfANewClientCheckItsServerOnce(t *testing.T) {
	server := startServer(t)
	queue := connected(t, server.url()).Queue("q")
	before := server.calls("info")
	var all sync.WaitGroup
	for range 64 {
		all.Add(1)
		go func() { defer all.Done(); mustPush(t, queue, "") }()
	}
	all.Wait()
	equal(t, server.calls("info")-before, 2) // one of them is that of `before`
}

func TestIdsThatAreMadeLaterSortLater(t *testing.T) {
	last := ""
	for range 10_000 {
		made := newID()
		if made <= last || checkID(made) != nil || len(made) != 22 {
			t.Fatal(last, made)
		}
		last = made
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

func TestAServerThatIsNotThereIsNamed(t *testing.T) {
	client := connected(t, "redis://127.0.0.1:1/")
	_, err := client.servers.one.call(ctx, false, "PING")
	if err == nil || !strings.HasPrefix(err.Error(), "dueq: cannot reach redis at 127.0.0.1:1: ") {
		t.Error(err)
	}
}
