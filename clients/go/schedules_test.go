package dueq

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func namesOf(changes []ScheduleChange) string {
	var names []string
	for _, one := range changes {
		names = append(names, one.Name)
	}
	return strings.Join(names, " ")
}

func listed(t testing.TB, queue *Queue) string {
	t.Helper()
	all, err := queue.ListSchedules(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, one := range all {
		names = append(names, fmt.Sprint(one.Name, "-", one.State))
	}
	return strings.Join(names, " ")
}

func TestASetIsDeclaredChangedAndPruned(t *testing.T) {
	server := startServer(t)
	queue := connected(t, server.url()).Queue("q")
	billing := queue.Schedules("billing")
	apply := func(set *ScheduleSet, schedules []Schedule, options ...ApplyOption) ScheduleChanges {
		t.Helper()
		done, err := set.Apply(ctx, schedules, options...)
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	refused := func(want string, schedules []Schedule, options ...ApplyOption) string {
		t.Helper()
		_, err := billing.Apply(ctx, schedules, options...)
		var failure *Error
		if !errors.As(err, &failure) || failure.Kind != KindInvalidInput || !strings.Contains(err.Error(), want) {
			t.Fatal(want, err)
		}
		return failure.Code
	}
	sync := Schedule{Name: "sync", Every: 15 * time.Minute}
	report := Schedule{Name: "report", Every: time.Hour, Payload: []byte("{}")}
	equal(t, namesOf(apply(billing, []Schedule{sync}, DryRun()).Created), "sync")
	equal(t, listed(t, queue), "")
	done := apply(billing, []Schedule{sync, report}, Revision(2), FireNow())
	equal(t, namesOf(done.Created), "sync report")
	equal(t, done.Created[0].Next.After(time.Now()), true)
	report.Every = time.Minute
	done = apply(billing, []Schedule{sync, report}, Revision(2))
	equal(t, namesOf(done.Kept)+", "+namesOf(done.Changed), "sync, report")
	equal(t, refused("newer revision 2", nil, Revision(1), Prune()), "STALE")
	refused(`schedule "fast": `, []Schedule{{Name: "fast", Every: time.Millisecond}, {Name: "new", Every: time.Minute}})
	equal(t, listed(t, queue), "report-active sync-active")
	equal(t, strings.Join(apply(billing, []Schedule{report}, Prune()).Removed, " "), "sync")
	var many []Schedule
	for n := range 24 {
		many = append(many, Schedule{Name: fmt.Sprint("s", n), Every: time.Minute})
	}
	refused("several sets", append(many, sync))
	for at := range many {
		many[at].Name = fmt.Sprint("t", at)
	}
	apply(queue.Schedules("one"), many)
	for at := range many {
		many[at].Name = fmt.Sprint("u", at)
	}
	apply(queue.Schedules("one"), many)
	equal(t, len(strings.Fields(listed(t, queue))), 49)
	equal(t, len(apply(queue.Schedules("one"), nil, Prune(), Forget()).Removed), 48) // by two calls
}

func TestOneScheduleIsReadPausedAndRemoved(t *testing.T) {
	server := startServer(t)
	queue := connected(t, server.url()).Queue("q")
	one := queue.Schedule("sync")
	found, err := one.Get(ctx)
	if found != nil || err != nil {
		t.Fatal(found, err)
	}
	_, err = queue.Schedules("billing").Apply(ctx, []Schedule{{Name: "sync", Every: 15 * time.Minute}}, FireNow())
	equal(t, err, nil)
	found, err = one.Get(ctx)
	if found == nil || err != nil {
		t.Fatal(err)
	}
	equal(t, fmt.Sprintf("%v %v %v", found.State, found.Triggered, found.Spec), "active 1 set=billing every=900000")
	equal(t, found.Next.After(time.Now()), true)
	for _, step := range []struct {
		do   func(context.Context) (bool, error)
		was  bool
		list string
	}{
		{one.Pause, true, "sync-paused"}, {one.Resume, true, "sync-active"}, {one.Remove, true, ""}, {one.Remove, false, ""},
	} {
		was, err := step.do(ctx)
		equal(t, err, nil)
		equal(t, was, step.was)
		equal(t, listed(t, queue), step.list)
	}
}

func TestAWorkerHandlesTheTicks(t *testing.T) {
	server := startServer(t)
	client := connected(t, server.url())
	queue := client.Queue("q")
	ticks := make(chan *Tick, 10)
	handle := func(_ context.Context, delivery *Delivery) error {
		ticks <- delivery.Tick
		return nil
	}
	mustPush(t, queue, "", ID("sync@7"), MaxAttempts(3))                 // an id like that of a tick
	startWorker(t, client.Worker().Queue(queue, handle, Concurrency(1))) // in their order
	if tick := receive(t, ticks); tick != nil {
		t.Fatal(tick)
	}
	_, err := queue.Schedules("billing").Apply(ctx, []Schedule{
		{Name: "sync", Every: 100 * time.Millisecond, Missed: MissedAll, Limit: 3},
	})
	equal(t, err, nil)
	first := receive(t, ticks)
	for n := range 2 {
		tick := receive(t, ticks)
		equal(t, tick.Schedule, "sync")
		equal(t, tick.Nominal.Sub(first.Nominal), time.Duration(n+1)*100*time.Millisecond)
	}
	server.acked("q", 4)
}
