package dueq

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestChangesWaitForReplicasAndDisks(t *testing.T) {
	t.Parallel()
	master := startServer(t)
	replica := startServer(t, "--replicaof", "127.0.0.1 "+fmt.Sprint(master.port))
	until(t, "the replica is online", func() bool {
		return strings.Contains(master.do("INFO", "replication").(string), "state=online")
	})
	plain := connected(t, master.url()).Queue("q")
	queue := plain.Durability(Replicated(1, 20*time.Second))
	equal(t, mustPush(t, queue, "", ID("a"), Delay(time.Hour)).Outcome, Created)
	equal(t, replica.do("EXISTS", "dueq:{q}:messages").(int64), 1)
	synced := plain.Durability(Fsynced(true, 1, 20*time.Second))
	if _, err := synced.Push(ctx, nil, ID("b"), Delay(time.Hour)); master.knows("WAITAOF") != (err == nil) {
		t.Error(err)
	}

	replica.freeze()
	short := plain.Durability(Replicated(1, 50*time.Millisecond))
	unconfirmed := func(err error, id string) {
		t.Helper()
		var failure *Error
		if !errors.As(err, &failure) || failure.Kind != KindUnconfirmed || failure.Applied != AppliedYes ||
			failure.ID != id || !failure.Retryable() || !strings.Contains(failure.Text, "only 0 of 1 replicas") {
			t.Errorf("%+v", err)
		}
	}
	_, err := short.Push(ctx, nil, ID("c"), Delay(time.Hour))
	unconfirmed(err, "c")
	_, err = short.Push(ctx, nil, ID("a")) // it writes nothing, and waits all the same
	unconfirmed(err, "a")
	_, err = short.Cancel(ctx, "c")
	unconfirmed(err, "c")
	if found, err := short.Cancel(ctx, "none"); found != IsAbsent || err != nil {
		t.Error(found, err)
	}
	replica.signal(syscall.SIGCONT)
	for _, one := range short.Durability(Replicated(1, 20*time.Second)).PushMany(ctx, numbered("m", 3, time.Hour, 0)) {
		if one.Err != nil {
			t.Error(one.Err)
		}
	}
	if found, err := queue.Cancel(ctx, "c"); found != Cancelled || err != nil { // repeated
		t.Error(found, err)
	}
}

func TestADurabilityThatCannotBeIsRefusedBeforeTheChange(t *testing.T) {
	t.Parallel()
	server := startServer(t, "--appendonly", "no")
	queue := connected(t, server.url()).Queue("q")
	for _, one := range []struct {
		durability Durability
		kind       ErrorKind
	}{
		{Fsynced(true, 0, time.Second), KindUnsupported},
		{Fsynced(false, 0, time.Second), KindInvalidInput},
		{Replicated(0, time.Second), KindInvalidInput},
		{Replicated(-1, time.Second), KindInvalidInput},
		{Replicated(1, 0), KindInvalidInput},
		{Replicated(1, time.Hour), KindInvalidInput},
	} {
		_, err := queue.Durability(one.durability).Push(ctx, nil, ID("a"))
		if !errors.Is(err, one.kind) || asError(err).Applied != AppliedNo {
			t.Error(one, err)
		}
	}
	stored, err := queue.Get(ctx, "a")
	if stored != nil || err != nil {
		t.Error(stored, err)
	}
}
