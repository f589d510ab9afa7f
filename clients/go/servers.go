package dueq

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

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
