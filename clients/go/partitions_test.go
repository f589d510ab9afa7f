package dueq

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// change changes the partitions as an operator does, while the queue is used. The channel closes at its end.
func change(t *testing.T, server *redisServer, queue string, count int) <-chan struct{} {
	t.Helper()
	operator := exec.Command(dueqProgram(t), "--redis", server.url(), "partitions", queue, fmt.Sprint(count))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if output, err := operator.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, output)
		}
	}()
	return ended
}

func isOpen(ended <-chan struct{}) bool {
	select {
	case <-ended:
		return false
	default:
		return true
	}
}

func TestCallsFindTheirMessageWhileThePartitionsChange(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	queue := connected(t, server.url()).Queue("q")
	messages := numbered("m", 300, time.Hour, 0)
	mustPushMany(t, queue, messages)
	for _, count := range []int{3, 2} {
		for ended := change(t, server, "q", count); isOpen(ended); {
			for n := 0; n < len(messages); n += 30 {
				id := messages[n].id
				equal(t, mustPush(t, queue, "other", ID(id), Delay(time.Minute)).Outcome, Exists)
				stored, err := queue.Get(ctx, id)
				if err != nil || stored == nil || string(stored.Payload) != id {
					t.Fatal(id, stored, err)
				}
			}
		}
	}
	var all sync.WaitGroup
	for _, message := range messages {
		all.Add(1)
		go func() {
			defer all.Done()
			if found, err := queue.Cancel(ctx, message.id); found != Cancelled || err != nil {
				t.Error(message.id, found, err)
			}
		}()
	}
	all.Wait()
	mustPushMany(t, queue, messages)
}

func TestAWorkerFollowsTheMapAndHandlesEachMessageOnce(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	client := connected(t, server.url())
	queue := client.Queue("q")
	var runs counter
	startWorker(t, client.Worker().Queue(queue, func(_ context.Context, delivery *Delivery) error {
		runs.add(delivery.ID)
		if strings.Contains(delivery.ID, "/") {
			return nil
		}
		return AckAnd(NewMessage(nil))
	}, Concurrency(8)))
	mustPushMany(t, queue, numbered("a", 300, 0, 10*time.Millisecond))
	sent := 0
	for ended := change(t, server, "q", 3); isOpen(ended); time.Sleep(20 * time.Millisecond) {
		mustPush(t, queue, "", ID(fmt.Sprint("b", sent)), Delay(100*time.Millisecond))
		sent++
	}
	until(t, "all have run", func() bool { return runs.len() == 2*(300+sent) })
	runs.once(t)
}

// startCluster starts three masters, which know each other.
func startCluster(t *testing.T) []*redisServer {
	t.Helper()
	var servers []*redisServer
	for number := range 3 {
		server := startServer(t, "--cluster-enabled", "yes")
		servers = append(servers, server)
		last := number*5_461 + 5_460
		if number == 2 {
			last++
		}
		server.do("CLUSTER", "ADDSLOTSRANGE", number*5_461, last)
		server.do("CLUSTER", "MEET", "127.0.0.1", servers[0].port)
	}
	until(t, "the cluster serves all slots", func() bool {
		for _, server := range servers {
			state := server.do("CLUSTER", "INFO").(string)
			if !strings.Contains(state, "cluster_state:ok") || !strings.Contains(state, "known_nodes:3") {
				return false
			}
		}
		return true
	})
	return servers
}

func TestAClusterIsServedAlsoWhileASlotMoves(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t)
	client := connected(t, fmt.Sprintf("redis+cluster://%s,%s", cluster[0].address(), cluster[1].address()))
	var runs counter
	worker := client.Worker()
	var queues []*Queue
	for n := range 6 {
		queue := client.Queue(fmt.Sprint("q", n))
		queues = append(queues, queue)
		worker.Queue(queue, func(_ context.Context, delivery *Delivery) error {
			runs.add(delivery.ID)
			return nil
		})
	}
	startWorker(t, worker)
	for _, queue := range queues {
		mustPushMany(t, queue, numbered(queue.Name()+":", 100, 0, 20*time.Millisecond))
	}
	moveSlot(t, cluster, "q0")
	mustPush(t, queues[0], "", ID("q0:after"), Delay(100*time.Millisecond))
	until(t, "all have run", func() bool { return runs.len() == 601 })
	runs.once(t)
}

// moveSlot moves the slot of a queue to another master, key by key.
func moveSlot(t *testing.T, cluster []*redisServer, queue string) {
	t.Helper()
	slot := slotOf("dueq:{" + queue + "}:meta")
	equal(t, cluster[0].do("CLUSTER", "KEYSLOT", "{"+queue+"}").(int64), int64(slot))
	at := min(slot/5_461, 2)
	owner, target := cluster[at], cluster[(at+1)%3]
	name := target.do("CLUSTER", "MYID")
	target.do("CLUSTER", "SETSLOT", slot, "IMPORTING", owner.do("CLUSTER", "MYID"))
	owner.do("CLUSTER", "SETSLOT", slot, "MIGRATING", name)
	for {
		keys := owner.do("CLUSTER", "GETKEYSINSLOT", slot, 100).([]any)
		if len(keys) == 0 {
			break
		}
		for _, key := range keys {
			owner.do("MIGRATE", "127.0.0.1", target.port, key, 0, 5_000)
		}
	}
	for _, server := range cluster {
		server.do("CLUSTER", "SETSLOT", slot, "NODE", name)
	}
}

func TestTheURLOfOneNodeServesItsWholeCluster(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t)
	client := connected(t, cluster[1].url())
	for n := range 6 {
		queue := client.Queue(fmt.Sprint("q", n))
		mustPush(t, queue, "x", ID("a"), Delay(time.Hour))
		stored, err := queue.Get(ctx, "a")
		if err != nil || stored == nil {
			t.Fatal(stored, err)
		}
	}
	for _, server := range cluster {
		if server.calls("evalsha") == 0 {
			t.Error("a master has got no call")
		}
	}
	_, err := connected(t, cluster[1].url()+"1").Queue("q").Push(ctx, nil)
	if err == nil || asError(err).Applied != AppliedNo {
		t.Error("a cluster has no database 1:", err)
	}
}
