package dueq

import (
	"context"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// workInProcess handles the queue q until it is killed, and writes a line for each run to the file that the
// environment names, or to its output.
func workInProcess(url string) {
	client, err := Connect(url)
	if err != nil {
		panic(err)
	}
	log, lease, pause := os.Stdout, time.Second, time.Minute
	if path := os.Getenv("DUEQ_TEST_LOG"); path != "" {
		lease, pause = 2*time.Second, 10*time.Millisecond
		if log, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0); err != nil {
			panic(err)
		}
	}
	handle := func(_ context.Context, delivery *Delivery) error {
		early := time.Now().UnixMilli() < delivery.Due.UnixMilli()
		// One write for each run, which a kill does not tear apart.
		fmt.Fprintf(log, "%s %d %d %t\n", delivery.ID, delivery.Attempt, delivery.Crashes, early)
		time.Sleep(pause)
		return nil
	}
	worker := client.Worker().Queue(client.Queue("q"), handle, Concurrency(8), Lease(lease))
	panic(worker.Run(context.Background()))
}

func workerProcess(t *testing.T, environment ...string) *exec.Cmd {
	t.Helper()
	process := exec.Command(os.Args[0])
	process.Env = append(os.Environ(), environment...)
	t.Cleanup(func() { killProcess(process) })
	return process
}

func killProcess(process *exec.Cmd) {
	if process.Process != nil {
		_ = process.Process.Kill()
		_ = process.Wait()
	}
}

func TestTheMessageOfAKilledWorkerComesBack(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	client := connected(t, server.url())
	queue := client.Queue("q")
	mustPush(t, queue, "", ID("a"))
	other := workerProcess(t, "DUEQ_TEST_WORKER="+server.url())
	output, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 100)
	count, err := output.Read(buffer)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, string(buffer[:count]), "a 1 0 false\n")
	seen := make(chan *Delivery, 1)
	startWorker(t, client.Worker().Queue(queue, func(_ context.Context, delivery *Delivery) error {
		seen <- delivery
		return nil
	}))
	killProcess(other)
	killed := time.Now()
	delivery := receive(t, seen)
	if after := time.Since(killed); after > 8*time.Second {
		t.Errorf("it came back after %s", after)
	}
	equal(t, [2]int{delivery.Attempt, delivery.Crashes}, [2]int{2, 1})
	server.acked("q", 1)
}

// Three processes of workers are killed, the server is killed, and its connections are cut, for 12 s.
func TestKillsLoseNothingAndDoubleNothingWithoutALapsedLease(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	chance := rand.New(rand.NewSource(1))
	path := filepath.Join(t.TempDir(), "runs")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	spawn := func() *exec.Cmd {
		process := workerProcess(t, "DUEQ_TEST_WORKER="+server.url(), "DUEQ_TEST_LOG="+path)
		if err := process.Start(); err != nil {
			t.Fatal(err)
		}
		return process
	}
	workers := []*exec.Cmd{spawn(), spawn(), spawn()}
	queue := connected(t, server.url()).Queue("q")
	pushed := 0
	end, nextFault := time.Now().Add(12*time.Second), time.Now().Add(2*time.Second)
	for time.Now().Before(end) {
		var all sync.WaitGroup
		for range 10 {
			id := fmt.Sprint("m", pushed)
			pushed++
			all.Add(1)
			go func() {
				defer all.Done()
				if _, err := queue.Push(ctx, nil, ID(id), Delay(200*time.Millisecond)); err != nil {
					t.Error(err)
				}
			}()
		}
		all.Wait()
		time.Sleep(40 * time.Millisecond)
		if time.Now().Before(nextFault) {
			continue
		}
		nextFault = time.Now().Add(time.Second)
		switch chance.Intn(4) {
		case 0, 1:
			at := chance.Intn(3)
			killProcess(workers[at])
			workers[at] = spawn()
		case 2:
			server.kill()
			server.start()
		case 3:
			server.do("CLIENT", "KILL", "TYPE", "normal")
		}
	}
	server.acked("q", pushed) // what a killed worker had comes back when its lease has run out
	equal(t, server.meta("q", "died"), 0)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	ids, tries := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		ids[words[0]] = true
		// A second run of an id has another attempt: a crash was charged, because a lease had run out.
		if try := words[0] + " " + words[1]; tries[try] {
			t.Errorf("%s has run twice", try)
		} else {
			tries[try] = true
		}
		if words[3] != "false" {
			t.Errorf("early: %s", line)
		}
	}
	equal(t, len(ids), pushed)
	t.Logf("%d messages, %d runs", pushed, len(tries))
}
