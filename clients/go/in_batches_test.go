package dueq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func noBatch(context.Context, []*Delivery) error { return nil }

// shown is the state of a message, or that it is gone.
func shown(t testing.TB, queue *Queue, id string) string {
	t.Helper()
	stored, err := queue.Get(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	if stored == nil {
		return "gone"
	}
	return fmt.Sprint(stored.State, " ", stored.Failures, " ", stored.Error)
}

func idsOf(batch []*Delivery) string {
	var ids []string
	for _, one := range batch {
		ids = append(ids, one.ID)
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

func TestABatchIsOneCallAndEachMessageIsSettledForItself(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	client := connected(t, server.url())
	queue := client.Queue("q")
	wants := make(chan map[string]string, 1)
	handle := func(_ context.Context, batch []*Delivery) error {
		want := map[string]string{}
		var each Each
		for _, one := range batch[:len(batch)-1] {
			switch one.ID {
			case "m0":
				each, want[one.ID] = append(each, fmt.Errorf("wrapped: %w", Bury("no"))), "dead 0 no"
			case "m1":
				each, want[one.ID] = append(each, Snooze(Delay(time.Minute))), "scheduled 0 "
			case "m2":
				each, want[one.ID] = append(each, errors.New("no index")), "scheduled 1 no index"
			default:
				each, want[one.ID] = append(each, nil), "gone"
			}
		}
		missing := "the handler of the batch returned 9 results, and none for this delivery"
		want[batch[len(batch)-1].ID] = "scheduled 1 " + missing
		wants <- want
		return each
	}
	mustPushMany(t, queue, numbered("m", 10, 200*time.Millisecond, 0))
	startWorker(t, client.Worker().InBatches(queue, 10, 9*time.Second, handle, Concurrency(2), Backoff(Fixed(time.Minute))))
	want := receive(t, wants)
	equal(t, len(want), 10)
	for id, state := range want {
		until(t, id+" is "+state, func() bool { return shown(t, queue, id) == state })
	}
}

func TestAFailureRetriesTheBatchAndTimeClosesOneThatIsNotFull(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	client := connected(t, server.url())
	queue := client.Queue("q")
	sizes, times := make(chan int, 10), atomic.Int64{}
	mustPushMany(t, queue, numbered("m", 3, 0, 0))
	startWorker(t, client.Worker().InBatches(queue, 3, 50*time.Millisecond, func(_ context.Context, batch []*Delivery) error {
		sizes <- len(batch)
		if times.Add(1) == 1 {
			panic("no index")
		}
		return nil
	}, Backoff(Fixed(200*time.Millisecond))))
	equal(t, receive(t, sizes), 3)
	server.acked("q", 3)
	equal(t, server.meta("q", "retried"), 3)
	for len(sizes) > 0 {
		<-sizes
	}
	mustPush(t, queue, "", ID("alone"))
	equal(t, receive(t, sizes), 1)
	server.acked("q", 4)
}

func TestNoMoreBatchesRunThanTheConcurrencyAndAStopClosesTheOpenOne(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	client := connected(t, server.url())
	queue := client.Queue("q")
	var running, most atomic.Int64
	handle := func(context.Context, []*Delivery) error {
		most.Store(max(most.Load(), running.Add(1)))
		defer running.Add(-1)
		time.Sleep(50 * time.Millisecond)
		return nil
	}
	mustPushMany(t, queue, numbered("m", 40, 0, 0))
	worker := client.Worker().InBatches(queue, 4, 10*time.Second, handle, Concurrency(2))
	stop := startWorker(t, worker)
	server.acked("q", 40)
	mustPush(t, queue, "", ID("last"))
	until(t, "the last one is in the open batch", func() bool {
		batches := worker.consumers[0].batches
		batches.mu.Lock()
		defer batches.mu.Unlock()
		return len(batches.open) == 1
	})
	stop()
	equal(t, most.Load(), 2)
	equal(t, server.meta("q", "acked"), 41)
}

func TestAMessageThatCrashedItsWorkerComesAlone(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	client := connected(t, server.url())
	queue := client.Queue("q")
	mustPush(t, queue, "", ID("crashed"))
	read, err := queue.router.partition(home).call(ctx, "claim", "", 1, strings.Repeat("t", 16), 1)
	if err != nil {
		t.Fatal(err)
	}
	_, all, _ := readClaim(read)
	equal(t, len(all), 1)
	mustPushMany(t, queue, numbered("m", 2, 300*time.Millisecond, 0))
	batches := make(chan string, 10)
	startWorker(t, client.Worker().InBatches(queue, 3, 200*time.Millisecond, func(_ context.Context, batch []*Delivery) error {
		batches <- idsOf(batch)
		return nil
	}))
	server.acked("q", 3)
	seen := []string{receive(t, batches), receive(t, batches)}
	slices.Sort(seen)
	equal(t, strings.Join(seen, ", "), "crashed, m0 m1")
}

func TestTheContextOfABatchEndsWithItsLastDelivery(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	client := connected(t, server.url())
	queue := client.Queue("q")
	causes, began := make(chan error, 1), make(chan bool, 1)
	mustPushMany(t, queue, numbered("m", 2, 0, 0))
	stop := startWorker(t, client.Worker(Grace(0)).InBatches(queue, 2, time.Second, func(ctx context.Context, _ []*Delivery) error {
		began <- true
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return ctx.Err()
	}))
	receive(t, began)
	stop()
	equal(t, receive(t, causes), ErrStopped)
	equal(t, server.meta("q", "released"), 2)
	limited := make(chan error, 1)
	startWorker(t, client.Worker().InBatches(queue, 2, time.Second, func(ctx context.Context, _ []*Delivery) error {
		<-ctx.Done()
		limited <- ctx.Err()
		return nil
	}, TimeLimit(50*time.Millisecond)))
	equal(t, receive(t, limited), context.DeadlineExceeded)
	server.acked("q", 2)
}

func TestABatchThatWaitsForItsTurnGoesWithItsLeases(t *testing.T) {
	made := &batches{most: 1, handler: noBatch}
	if _, err := made.configure(queueSettings{concurrency: 1, lease: time.Second}); err != nil {
		t.Fatal(err)
	}
	made.running <- struct{}{} // another one runs
	leased, lose := context.WithCancelCause(ctx)
	result := make(chan error, 1)
	go func() { result <- made.handle(leased, &Delivery{}) }()
	lose(ErrLeaseLost)
	equal(t, receive(t, result), ErrLeaseLost)
}
