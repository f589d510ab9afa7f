// asynq as dueq-bench drives it. README.md says how it is configured.
package main

import (
	"context"
	"driver"
	"os"
	"strings"
	"time"

	"github.com/hibiken/asynq"
)

const concurrency = 100

type system struct {
	redis  asynq.RedisClientOpt
	name   string
	client *asynq.Client
	look   *asynq.Inspector
	server *asynq.Server
}

func (s *system) Open(name string) error {
	s.name, s.server = name, nil
	s.client, s.look = asynq.NewClient(s.redis), asynq.NewInspector(s.redis)
	return nil
}

func (s *system) Push(message driver.Message) error {
	options := []asynq.Option{asynq.Queue(s.name)}
	if message.DueMs != 0 {
		options = append(options, asynq.ProcessAt(time.UnixMilli(message.DueMs)))
	}
	_, err := s.client.Enqueue(asynq.NewTask("m", message.Payload), options...)
	return err
}

func (s *system) PushMany(messages []driver.Message) error { return s.Push(messages[0]) }

func (s *system) Work(handlers int, sink *driver.Sink) error {
	s.server = asynq.NewServer(s.redis, asynq.Config{
		Concurrency: handlers,
		Queues:      map[string]int{s.name: 1},
		LogLevel:    asynq.FatalLevel,
		// What is least late: the defaults are 5 s and 1 s.
		DelayedTaskCheckInterval: 100 * time.Millisecond,
		TaskCheckInterval:        100 * time.Millisecond,
	})
	return s.server.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		return sink.Start(task.Payload())
	}))
}

// Acked: the server acknowledges after the handler.
func (s *system) Acked(int64) (bool, error) {
	info, err := s.look.GetQueueInfo(s.name)
	return err == nil && info.Active == 0, err
}

func (s *system) Close() error {
	if s.server != nil {
		s.server.Shutdown()
	}
	s.client.Close()
	return s.look.Close()
}

func main() {
	address := strings.Trim(strings.TrimPrefix(os.Args[1], "redis://"), "/")
	redis := asynq.RedisClientOpt{Addr: address, PoolSize: concurrency}
	// It has no call for many: so many single ones at a time.
	driver.Run(&system{redis: redis}, driver.Best{Batch: 1, InFlight: 64, Concurrency: concurrency})
}
