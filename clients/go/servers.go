package dueq

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/url"
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
func (s *server) check() error {
	if s.isChecked.Load() {
		return nil
	}
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

// settings are those of all connections of a client.
type settings struct {
	tls                          *tls.Config
	user, password               string
	sentinelUser, sentinelSecret string
	database                     int
}

// options of go-redis. It would send a call again by itself, also one that must not be repeated.
func (s settings) options(connections int) redis.Options {
	return redis.Options{
		Username: s.user, Password: s.password, DB: s.database, TLSConfig: s.tls, Protocol: 2, DisableIdentity: true,
		MaxRetries: -1, DialerRetries: 1, DialTimeout: connectLimit, ReadTimeout: responseLimit, WriteTimeout: responseLimit,
		PoolSize: connections,
	}
}

// at is a server at HOST:PORT, or at the path of a socket.
func (s settings) at(network, address string) *server {
	return newServer(address, func(connections int) *redis.Client {
		options := s.options(connections)
		options.Network, options.Addr = network, address
		return redis.NewClient(&options)
	})
}

// master is the server that Sentinels name.
func (s settings) master(service string, sentinels []string) *server {
	return newServer("the master of "+service, func(connections int) *redis.Client {
		o := s.options(connections)
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: service, SentinelAddrs: sentinels, SentinelUsername: s.sentinelUser, SentinelPassword: s.sentinelSecret,
			Username: o.Username, Password: o.Password, DB: o.DB, TLSConfig: o.TLSConfig, Protocol: o.Protocol,
			DisableIdentity: o.DisableIdentity, MaxRetries: o.MaxRetries, DialerRetries: o.DialerRetries,
			DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout, PoolSize: o.PoolSize,
		})
	})
}

// servers of one URL. Each key has one server at a time.
type servers struct {
	one     *server // of a URL that names one server, which may belong to a cluster, or Sentinels
	cluster *cluster
	// mayBelong holds if the one server may belong to a cluster, whose other masters this client then uses too.
	mayBelong bool
	closing   sync.Once
}

// isCluster holds if the keys may be on several servers.
func (s *servers) isCluster() (bool, error) {
	if s.one == nil {
		return true, nil
	}
	if !s.mayBelong {
		return false, nil
	}
	if err := s.one.check(); err != nil {
		return false, err
	}
	return s.one.isCluster.Load(), nil
}

func (s *servers) ofKey(ctx context.Context, key string) (*server, error) {
	isCluster, err := s.isCluster()
	if err != nil || !isCluster {
		return s.one, err
	}
	return s.cluster.ofKey(ctx, key)
}

func (s *servers) send(ctx context.Context, key string, send sender) (any, error) {
	isCluster, err := s.isCluster()
	if err != nil {
		return nil, err
	}
	if !isCluster {
		return send(s.one, false)
	}
	return s.cluster.follow(ctx, key, send)
}

func (s *servers) run(ctx context.Context, verb string, keys []string, arguments []any) (any, error) {
	return s.send(ctx, keys[0], func(server *server, asking bool) (any, error) {
		return server.run(ctx, asking, verb, keys, arguments)
	})
}

func (s *servers) call(ctx context.Context, key string, words ...any) (any, error) {
	return s.send(ctx, key, func(server *server, asking bool) (any, error) {
		return server.call(ctx, asking, words...)
	})
}

func (s *servers) close() {
	s.closing.Do(func() {
		if s.one != nil {
			s.one.close()
		}
		s.cluster.close()
	})
}

// serversOf reads `redis://`, `rediss://` and `unix://`; `redis+cluster://HOST:PORT,...`;
// `redis+sentinel://HOST:PORT,.../SERVICE[/DATABASE]`.
func serversOf(text string, given *tls.Config) (*servers, error) {
	scheme, rest, _ := strings.Cut(text, "://")
	base, kind, _ := strings.Cut(scheme, "+")
	base = strings.NewReplacer("valkeys", "rediss", "valkey", "redis").Replace(base)
	if base != "redis" && base != "rediss" && base != "unix" || kind != "" && kind != "cluster" && kind != "sentinel" {
		if !strings.Contains(text, "://") {
			scheme = ""
		}
		return nil, invalid("the scheme of the URL is %q: it must be redis, rediss or unix, or redis+cluster or redis+sentinel", scheme)
	}
	if base == "rediss" && given == nil {
		given = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if kind == "" {
		// The text of the error may have the password.
		parsed, err := redis.ParseURL(base + "://" + rest)
		if err != nil {
			return nil, invalid("the URL cannot be read: it is redis://USER:PASSWORD@HOST:PORT/DATABASE")
		}
		// The certificate is always verified, and by the name of each server: it may belong to a cluster.
		s := settings{user: parsed.Username, password: parsed.Password, database: parsed.DB}
		if base == "rediss" {
			s.tls = given
		}
		one := s.at(parsed.Network, parsed.Addr)
		return &servers{one: one, cluster: newCluster(s, parsed.Addr), mayBelong: parsed.Network == "tcp"}, nil
	}
	rest, query, _ := strings.Cut(rest, "?")
	user, hosts := "", rest
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		user, hosts = rest[:at], rest[at+1:]
	}
	hosts, path, _ := strings.Cut(hosts, "/")
	name, secret, _ := strings.Cut(user, ":")
	more, err := url.ParseQuery(query)
	s := settings{sentinelUser: more.Get("sentinel_user"), sentinelSecret: more.Get("sentinel_password")}
	var errs [2]error
	s.user, errs[0] = url.PathUnescape(name)
	s.password, errs[1] = url.PathUnescape(secret)
	if err := errors.Join(err, errs[0], errs[1]); err != nil {
		return nil, invalid("the URL cannot be read: user, password and query are percent-encoded")
	}
	if base == "rediss" {
		s.tls = given
	}
	port := "6379"
	if kind == "sentinel" {
		port = "26379"
	}
	var places []string
	for _, host := range strings.Split(hosts, ",") {
		place, err := placeOf(host, port)
		if err != nil {
			return nil, err
		}
		places = append(places, place)
	}
	if kind == "cluster" {
		return &servers{cluster: newCluster(s, places...)}, nil
	}
	service, database, _ := strings.Cut(path, "/")
	if database == "" {
		database = "0"
	}
	if s.database, err = strconv.Atoi(database); err != nil || service == "" {
		return nil, invalid("a URL of Sentinels is redis+sentinel://HOST:PORT[,HOST:PORT...]/SERVICE[/DATABASE]")
	}
	return &servers{one: s.master(service, places), cluster: newCluster(s)}, nil
}

func placeOf(text, port string) (string, error) {
	host, number, err := net.SplitHostPort(text)
	if err != nil {
		host, number = strings.Trim(text, "[]"), port
	}
	if _, err := strconv.ParseUint(number, 10, 16); err != nil || host == "" || strings.ContainsAny(host, "/ []") {
		return "", invalid("the URL names a host as HOST:PORT, not %q", text)
	}
	return net.JoinHostPort(host, number), nil
}
