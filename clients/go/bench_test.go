package dueq

import (
	"context"
	"fmt"
	"sync"
	"testing"
)

// A life of a message: 64 goroutines push one at a time, and a worker of the same process handles and acks it.
func BenchmarkLife(b *testing.B) {
	server := startServer(b, "--appendonly", "no")
	client, err := Connect(server.url())
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	queue := client.Queue("q")
	var left sync.WaitGroup
	left.Add(b.N)
	worker := client.Worker().Queue(queue, func(context.Context, *Delivery) error {
		left.Done()
		return nil
	}, Concurrency(256))
	stop := startWorker(b, worker)
	before := server.cpu()
	b.ResetTimer()
	next := make(chan int)
	for range 64 {
		go func() {
			for n := range next {
				mustPush(b, queue, "payload", ID(fmt.Sprint("m", n)))
			}
		}()
	}
	for n := range b.N {
		next <- n
	}
	close(next)
	left.Wait()
	b.StopTimer()
	b.ReportMetric((server.cpu()-before)*1e6/float64(b.N), "redis-us/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "lives/s")
	stop()
}
