package dueq

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestCallsAndWorkersFollowAFailover(t *testing.T) {
	t.Parallel()
	master := startServer(t)
	startServer(t, "--replicaof", "127.0.0.1 "+fmt.Sprint(master.port))
	until(t, "the replica is online", func() bool {
		return strings.Contains(master.do("INFO", "replication").(string), "state=online")
	})
	port := freePort(t)
	conf := filepath.Join(t.TempDir(), "conf")
	text := fmt.Sprintf("port %d\nsentinel monitor orders 127.0.0.1 %d 1\nsentinel down-after-milliseconds orders 500\n"+
		"sentinel failover-timeout orders 3000\n", port, master.port)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	sentinel := exec.Command(program(), conf, "--sentinel")
	if err := sentinel.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { killProcess(sentinel) })
	watch := redis.NewSentinelClient(&redis.Options{Addr: fmt.Sprint("127.0.0.1:", port)})
	defer watch.Close()
	until(t, "the Sentinel knows the replica", func() bool {
		replicas, err := watch.Replicas(ctx, "orders").Result()
		return err == nil && len(replicas) == 1
	})
	client := connected(t, fmt.Sprintf("redis+sentinel://127.0.0.1:%d/orders", port))
	queue := client.Queue("q")
	var runs counter
	startWorker(t, client.Worker().Queue(queue, func(_ context.Context, delivery *Delivery) error {
		runs.add(delivery.ID)
		return nil
	}))
	mustPush(t, queue, "", ID("before"))
	until(t, "it has run", func() bool { return runs.len() == 1 })
	// Pushed and replicated before the kill: no failover loses them.
	mustPushMany(t, queue, numbered("m", 100, 500*time.Millisecond, 20*time.Millisecond))
	master.do("WAIT", 1, 2_000)
	master.kill()
	// On a busy machine the Sentinel may take longer than the 10 s for which a call is repeated.
	until(t, "a push reaches the new master", func() bool {
		_, err := queue.Push(ctx, nil, ID("after"), Delay(100*time.Millisecond))
		if err != nil && !asError(err).Retryable() {
			t.Fatal(err)
		}
		return err == nil
	})
	until(t, "all have run", func() bool { return runs.len() == 102 })
}
