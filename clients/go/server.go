package dueq

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// responseLimit is how long one command may take before its connection is closed.
	responseLimit = 5 * time.Second
	connectLimit  = 2 * time.Second
	// mostConnections: each worker blocks on one for each partition, and no call may wait for those.
	mostConnections = 4_096
)

// server is one server, through a pool of go-redis. A call has its connection for itself.
type server struct {
	address   string
	open      func(connections int) *redis.Client
	client    *redis.Client
	isChecked atomic.Bool
	isCluster atomic.Bool
	canWait   sync.Map // the commands that it was seen to know

	mu       sync.Mutex
	checking func() error // shared by all that call while it is under way; nil unless it is
}

// commander is a client of go-redis, or one connection of it.
type commander interface {
	Process(ctx context.Context, command redis.Cmder) error
	Pipeline() redis.Pipeliner
}

func newServer(address string, open func(connections int) *redis.Client) *server {
	return &server{address: address, open: open, client: open(mostConnections)}
}

// own is the same server with one connection of its own, which closing it ends at once.
func (s *server) own() *server {
	copied := &server{address: s.address, open: s.open, client: s.open(1)}
	copied.isChecked.Store(true)
	return copied
}

func (s *server) close() { _ = s.client.Close() }

// written is a word of a command, and notes that the command is written to a connection.
type written struct {
	word any
	sent *bool
}

func (w written) MarshalBinary() ([]byte, error) {
	*w.sent = true
	text, _ := w.word.(string)
	return []byte(text), nil
}

// call sends one command. If ctx ends before the reply, the command goes on without its caller.
func (s *server) call(ctx context.Context, asking bool, words ...any) (any, error) {
	if ctx.Done() == nil {
		return s.exchange(asking, words)
	}
	type outcome struct {
		value any
		err   error
	}
	ended := make(chan outcome, 1)
	go func() {
		value, err := s.exchange(asking, words)
		ended <- outcome{value, err}
	}()
	select {
	case one := <-ended:
		return one.value, one.err
	case <-ctx.Done():
		return nil, abandoned(ctx, AppliedUnknown)
	}
}

func (s *server) exchange(asking bool, words []any) (any, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	return s.send(asking, words)
}

func (s *server) send(asking bool, words []any) (any, error) {
	return s.sendBy(s.client, asking, words)
}

func (s *server) sendBy(by commander, asking bool, words []any) (any, error) {
	ctx, sent := context.Background(), false
	words = slices.Clone(words)
	last := min(1, len(words)-1)
	words[last] = written{words[last], &sent}
	command := redis.NewCmd(ctx, words...)
	if asking {
		pipe := by.Pipeline()
		pipe.Do(ctx, "ASKING")
		_ = pipe.Process(ctx, command)
		_, _ = pipe.Exec(ctx)
	} else {
		_ = by.Process(ctx, command)
	}
	value, err := command.Result()
	if err == nil || errors.Is(err, redis.Nil) {
		return value, nil
	}
	failure := s.failed(err)
	if !sent {
		failure.Applied = AppliedNo
		if failure.Code == "" && failure.Kind == KindTimeout {
			failure.Kind = KindUnavailable
		}
	}
	return nil, failure
}

// failed is the error of a command that was sent.
func (s *server) failed(err error) *Error {
	var answer redis.Error
	var network net.Error
	isNetwork := errors.As(err, &network)
	switch {
	case errors.As(err, &answer):
		return errorOfReply(s.address, answer.Error())
	case errors.Is(err, redis.ErrClosed):
		return &Error{Kind: KindInvalidInput, Applied: AppliedNo, Text: "the client is closed: make a new one", cause: err}
	case isNetwork && network.Timeout():
		text := "redis at " + s.address + " did not answer within " + responseLimit.String()
		return &Error{Kind: KindTimeout, Applied: AppliedUnknown, Text: text, cause: err}
	case isNetwork, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		text := "the connection to redis at " + s.address + " was lost: " + err.Error()
		var operation *net.OpError
		if errors.As(err, &operation) && operation.Op == "dial" {
			text = "cannot reach redis at " + s.address + ": " + err.Error()
		}
		return &Error{Kind: KindUnavailable, Applied: AppliedUnknown, Text: text, cause: err}
	}
	text := "the call of redis at " + s.address + " failed: " + err.Error()
	return &Error{Kind: KindServer, Applied: AppliedUnknown, Text: text, cause: err}
}

func (s *server) run(ctx context.Context, asking bool, verb string, keys []string, arguments []any) (any, error) {
	send := func(asking bool, words ...any) (any, error) { return s.call(ctx, asking, words...) }
	return evaluate(send, asking, verb, keys, arguments)
}

// evaluate calls a script by its hash, and loads it where the server does not have it.
func evaluate(
	send func(asking bool, words ...any) (any, error), asking bool, verb string, keys []string, arguments []any,
) (any, error) {
	script := scripts()[verb]
	words := make([]any, 0, 3+len(keys)+len(arguments))
	words = append(words, "EVALSHA", script.sha, len(keys))
	for _, key := range keys {
		words = append(words, key)
	}
	words = append(words, arguments...)
	value, err := send(asking, words...)
	if err == nil || asError(err).Code != "NOSCRIPT" {
		return value, err
	}
	if _, err := send(false, "SCRIPT", "LOAD", script.text); err != nil {
		return nil, asError(err).with(AppliedNo)
	}
	return send(asking, words...)
}

// check refuses a server that is too old, or that may evict a queue. Without a right to INFO nothing is checked.
// Many callers of a new client need one check and one connection for it.
func (s *server) check() error {
	if s.isChecked.Load() {
		return nil
	}
	s.mu.Lock()
	if s.checking == nil {
		s.checking = sync.OnceValue(func() error {
			err := s.examine()
			s.mu.Lock()
			defer s.mu.Unlock()
			s.checking = nil
			return err
		})
	}
	check := s.checking
	s.mu.Unlock()
	return check()
}

func (s *server) examine() error {
	value, err := s.send(false, []any{"INFO"})
	if err != nil {
		failure := asError(err)
		if failure.Applied == AppliedUnknown || failure.isOutage() || failure.Code == "" {
			return failure.with(AppliedNo) // only INFO may have been applied: the call itself was not sent
		}
		if failure.Kind == KindDenied && failure.Code != "NOPERM" {
			return failure
		}
	}
	facts := map[string]string{"redis_version": "7.0"}
	text, _ := value.(string)
	for line := range strings.Lines(text) {
		name, fact, _ := strings.Cut(strings.TrimSpace(line), ":")
		facts[name] = fact
	}
	version := facts["redis_version"]
	if valkey := facts["valkey_version"]; valkey != "" {
		version = valkey
	}
	major, _, _ := strings.Cut(version, ".")
	number, err := strconv.Atoi(major)
	why := ""
	if err == nil && number < 7 {
		why = "it has version " + version + ", and dueq needs Redis 7.0 or Valkey 7.2 or newer"
	} else if policy := facts["maxmemory_policy"]; strings.HasPrefix(policy, "allkeys") {
		why = "its maxmemory-policy " + policy + " evicts messages: set noeviction"
	}
	if why != "" {
		text := "redis at " + s.address + " is refused: " + why
		return &Error{Kind: KindUnsupported, Applied: AppliedNo, Text: text}
	}
	s.isCluster.Store(facts["cluster_enabled"] == "1")
	s.isChecked.Store(true)
	return nil
}

// listen passes on what is published to a shard channel, and nil once it is subscribed, until ctx ends or an error.
func (s *server) listen(ctx context.Context, channel string, heard func(notice *string)) error {
	subscription := s.client.SSubscribe(ctx, channel)
	defer subscription.Close()
	defer context.AfterFunc(ctx, func() { subscription.Close() })()
	for isSilent := false; ; {
		message, err := subscription.ReceiveTimeout(context.Background(), responseLimit)
		var network net.Error
		if errors.As(err, &network) && network.Timeout() && !isSilent {
			isSilent = true
			err = subscription.Ping(context.Background())
			message = nil
		}
		if err != nil {
			return s.failed(err)
		}
		switch message := message.(type) {
		case nil:
			continue
		case *redis.Message:
			heard(&message.Payload)
		case *redis.Subscription:
			if message.Kind == "sunsubscribe" { // the slot has moved to another server
				return unavailable("the subscription at %s has ended", s.address)
			}
			heard(nil)
		}
		isSilent = false
	}
}
