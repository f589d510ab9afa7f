// clients/go as dueq-bench drives it. README.md says how it is configured.
package main

import (
	"context"
	"driver"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	dueq "github.com/dueq/dueq/clients/go"
	"github.com/redis/go-redis/v9"
)

var background = context.Background()

type system struct {
	url    string
	redis  *redis.Client
	client *dueq.Client
	queue  *dueq.Queue
	worker *dueq.Worker
	ended  chan error
}

func (s *system) Open(name string) (err error) {
	s.worker = nil
	s.client, err = dueq.Connect(s.url)
	if err == nil {
		s.queue = s.client.Queue(name)
	}
	return err
}

func options(message driver.Message) []dueq.Option {
	if message.DueMs == 0 {
		return nil
	}
	return []dueq.Option{dueq.Due(time.UnixMilli(message.DueMs))}
}

func created(receipt dueq.Receipt, err error) error {
	if err == nil && !receipt.Created() {
		err = fmt.Errorf("a push answered %v", receipt)
	}
	return err
}

func (s *system) Push(message driver.Message) error {
	return created(s.queue.Push(background, message.Payload, options(message)...))
}

func (s *system) PushMany(messages []driver.Message) error {
	made := make([]dueq.Message, len(messages))
	for i, message := range messages {
		made[i] = dueq.NewMessage(message.Payload, options(message)...)
	}
	var failures []error
	for _, result := range s.queue.PushMany(background, made) {
		failures = append(failures, created(result.Receipt, result.Err))
	}
	return errors.Join(failures...)
}

func (s *system) Work(handlers int, sink *driver.Sink) error {
	handler := func(_ context.Context, delivery *dueq.Delivery) error { return sink.Start(delivery.Payload) }
	s.worker, s.ended = s.client.Worker().Queue(s.queue, handler, dueq.Concurrency(handlers)), make(chan error, 1)
	go func() { s.ended <- s.worker.Run(background) }()
	return nil
}

func (s *system) Acked(n int64) (bool, error) {
	acked, err := s.redis.HGet(background, "dueq:{"+s.queue.Name()+"}:meta", "acked").Int64()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return acked >= n, err
}

func (s *system) Close() error {
	if s.worker != nil {
		s.worker.Stop()
		if err := <-s.ended; err != nil {
			return err
		}
	}
	return s.client.Close()
}

func main() {
	options, err := redis.ParseURL(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	s := &system{url: os.Args[1], redis: redis.NewClient(options)}
	driver.Run(s, driver.Best{Batch: 1_000, InFlight: 4, Concurrency: 512})
}
