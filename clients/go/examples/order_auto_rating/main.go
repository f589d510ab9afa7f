// An order is rated five stars 48 hours after its delivery, unless its buyer has rated it by then.
// Replays the orders of a file a million times faster, and fails if the books do not balance.
//
// usage: go run ./examples/order_auto_rating [-speed N] ORDERS.CSV     (order_id, delivered_at, reviewed_at, review_score)
// The repository has the orders: from the folder of the client, ../../examples/order_auto_rating/orders.csv.
// REDIS_URL names the server; without it, redis://127.0.0.1:6379/.
package main

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	dueq "github.com/dueq/dueq/clients/go"
)

const window = 48 * time.Hour

type order struct {
	id                  string
	delivered, reviewed time.Duration // since the first delivery; a review at -1 never comes
}

// books count what became of each order, and what is wrong.
type books struct {
	mu                                               sync.Mutex
	isRated                                          map[string]bool
	pushed, cancelled, automatic, replaced, reviewed int
	complaints                                       []error
}

func (b *books) enter(write func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	write()
}

func (b *books) complain(format string, values ...any) {
	b.enter(func() { b.complaints = append(b.complaints, fmt.Errorf(format, values...)) })
}

func main() {
	speed := flag.Int64("speed", 1_000_000, "how many times faster than the orders came in")
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("usage: order_auto_rating [-speed N] ORDERS.CSV")
	}
	orders, err := read(flag.Arg(0))
	if err != nil {
		log.Fatal(err)
	}
	client, err := dueq.Connect(cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379/"))
	if err != nil {
		log.Fatal(err)
	}
	queue := client.Queue(fmt.Sprintf("orders-%d", time.Now().UnixNano()))
	found := replay(client, queue, orders, *speed)
	if err := client.Close(); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d orders: %d rated by their buyers before the delivery, %d pushed; of those %d cancelled by a review, %d rated "+
		"automatically, %d of them reviewed later\n",
		len(orders), found.reviewed, found.pushed, found.cancelled, found.automatic, found.replaced)
	if found.pushed+found.reviewed != len(orders) || found.cancelled+found.automatic != found.pushed {
		found.complain("the books do not balance")
	}
	if err := errors.Join(found.complaints...); err != nil {
		log.Fatal(err)
	}
	fmt.Println("the books balance")
}

// replay runs the shop, each order in a goroutine, and a worker that rates what comes due.
func replay(client *dueq.Client, queue *dueq.Queue, orders []order, speed int64) *books {
	b := &books{isRated: map[string]bool{}}
	scaled := func(real time.Duration) time.Duration { return real / time.Duration(speed) }
	ctx := context.Background()
	var fired sync.WaitGroup // the messages that no review has cancelled
	rate := func(_ context.Context, delivery *dueq.Delivery) error {
		defer fired.Done()
		if time.Now().UnixMilli() < delivery.Due.UnixMilli() {
			b.complain("%s was rated early", delivery.ID)
		}
		b.enter(func() {
			if b.isRated[delivery.ID] {
				b.complaints = append(b.complaints, fmt.Errorf("%s was rated twice", delivery.ID))
			}
			b.isRated[delivery.ID] = true
			b.automatic++
		})
		return nil
	}
	worker := client.Worker().Queue(queue, rate, dueq.Concurrency(64))
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	start := time.Now()
	live := func(one order) {
		time.Sleep(time.Until(start.Add(scaled(one.delivered))))
		if one.reviewed >= 0 && one.reviewed <= one.delivered {
			b.enter(func() { b.reviewed++ })
			return
		}
		fired.Add(1)
		delay := time.Until(start.Add(scaled(one.delivered + window)))
		receipt, err := queue.Push(ctx, []byte(one.id), dueq.ID(one.id), dueq.Delay(max(delay, 0)))
		if err != nil || !receipt.Created() {
			b.complain("push of %s: %v %w", one.id, receipt.Outcome, err)
			return
		}
		b.enter(func() { b.pushed++ })
		if one.reviewed < 0 {
			return
		}
		time.Sleep(time.Until(start.Add(scaled(one.reviewed))))
		outcome, err := queue.Cancel(ctx, one.id)
		switch {
		case err != nil:
			b.complain("cancel of %s: %w", one.id, err)
		case outcome == dueq.Cancelled:
			b.enter(func() { b.cancelled++ })
			fired.Done()
		default: // it is being rated, or has been: the review replaces the rating
			b.enter(func() { b.replaced++ })
		}
	}
	var lives sync.WaitGroup
	for _, one := range orders {
		lives.Add(1)
		go func() { defer lives.Done(); live(one) }()
	}
	lives.Wait()
	fired.Wait()
	worker.Stop()
	if err := <-ended; err != nil {
		b.complain("worker: %w", err)
	}
	return b
}

func read(path string) ([]order, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil || len(rows) < 2 {
		return nil, fmt.Errorf("%s has no orders: %w", path, err)
	}
	var orders []order
	var first time.Time
	for _, row := range rows[1:] {
		delivered, err := time.Parse("2006-01-02T15:04:05", row[1])
		if err != nil {
			return nil, err
		}
		if first.IsZero() {
			first = delivered
		}
		one := order{row[0], delivered.Sub(first), -1}
		if row[2] != "" {
			reviewed, err := time.Parse("2006-01-02T15:04:05", row[2])
			if err != nil {
				return nil, err
			}
			one.reviewed = max(reviewed.Sub(first), 0)
		}
		orders = append(orders, one)
	}
	return orders, nil
}
