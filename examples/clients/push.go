// Stores one message in a dueq queue, due DELAY_MS from now by Redis's clock.
//
// usage: go run push.go QUEUE ID DELAY_MS PAYLOAD [OPTION...]      (PAYLOAD -: standard input, any bytes)
// An OPTION is a word such as max_attempts=5, expires=+7200000, on_expire=drop or cost=3.
// Needs go-redis (go get github.com/redis/go-redis/v9) and, once on the server that REDIS_URL names, `dueq functions load`.
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"hash/crc32"
	"io"
	"log"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var keys = strings.Fields("scheduled ready leases claims messages attrs dead recent nodes meta")

// partitions of a queue; the zero value is that of a queue of one partition
type partitions struct {
	epoch string
	tags  []string
	text  string
}

var maps = map[string]partitions{} // by queue

func keysOf(queue, tag string) []string {
	if tag != "-" {
		queue += "/" + tag
	}
	names := make([]string, len(keys)) // all ten, in this order
	for i, key := range keys {
		names[i] = fmt.Sprintf("dueq:{%s}:%s", queue, key)
	}
	return names
}

// readMap returns false while the partitions change.
func readMap(ctx context.Context, client *redis.Client, queue string) (partitions, bool, error) {
	text, err := client.HGet(ctx, keysOf(queue, "-")[9], "map").Result()
	if err == redis.Nil {
		return partitions{}, true, nil
	} else if err != nil {
		return partitions{}, false, err
	}
	parts := strings.Split(text, "|") // epoch, tags before, tags after a change
	return partitions{"m" + parts[0], strings.Split(parts[2], " "), text}, parts[1] == parts[2], nil
}

// tagOf returns the tag of the partition that holds the id.
func (known partitions) tagOf(id string) string {
	if len(known.tags) == 0 {
		return "-"
	}
	if _, rest, found := strings.Cut(id, "{"); found {
		if part, _, found := strings.Cut(rest, "}"); found && part != "" {
			id = part
		}
	}
	return known.tags[uint64(crc32.ChecksumIEEE([]byte(id)))*uint64(len(known.tags))>>32]
}

// call calls a function at the partition of the id. It waits for up to ten seconds while the partitions change.
func call(ctx context.Context, client *redis.Client, queue, id, function string, args ...any) ([]any, error) {
	for end := time.Now().Add(10 * time.Second); ; {
		known := maps[queue]
		names := keysOf(queue, known.tagOf(id))
		reply, err := client.FCall(ctx, function, names, append([]any{known.epoch}, args...)...).Slice()
		remapped := redis.HasErrorPrefix(err, "REMAPPED")
		behind := redis.HasErrorPrefix(err, "BEHIND")
		if !remapped && !behind || time.Now().After(end) {
			return reply, err
		}
		// The partition has another map: the call did nothing.
		newest, settled, err := readMap(ctx, client, queue)
		if err != nil {
			return nil, err
		}
		if settled && newest.text != known.text {
			maps[queue] = newest
		} else if settled && behind && known.text != "" {
			if err := client.FCall(ctx, "dueq_remap", names, "", "forward", known.text).Err(); err != nil {
				return nil, err
			}
		} else {
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// push returns true if it stored the message, and false if the id was pushed before.
func push(ctx context.Context, client *redis.Client, queue, id, delayMs string, payload []byte, options string) (bool, error) {
	// A client sends a call again when its connection breaks. The script recognises the repetition for ten seconds.
	now, err := client.Time(ctx).Result()
	if err != nil {
		return false, err
	}
	us := now.Add(10 * time.Second).UnixMicro()
	attempt := fmt.Sprintf("%d.%03d %s", us/1000, us%1000, rand.Text())
	reply, err := call(ctx, client, queue, id, "dueq_push", attempt, id, "+"+delayMs, payload, options)
	if err != nil {
		return false, err
	}
	result := fmt.Sprint(reply[1].([]any)[0])
	switch {
	case result == "CREATED":
		return true, nil
	case result == "FINISHED" || strings.HasPrefix(result, "EXISTS"):
		return false, nil
	}
	return false, fmt.Errorf("%s", result)
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("push.go: ")
	args := os.Args[1:]
	if len(args) < 4 {
		log.Fatal("usage: QUEUE ID DELAY_MS PAYLOAD [OPTION...]")
	}
	queue, id, delayMs, payload := args[0], args[1], args[2], []byte(args[3])
	if string(payload) == "-" {
		var err error
		if payload, err = io.ReadAll(os.Stdin); err != nil {
			log.Fatal(err)
		}
	}
	server, err := redis.ParseURL(cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379/"))
	if err != nil {
		log.Fatal(err)
	}
	created, err := push(context.Background(), redis.NewClient(server), queue, id, delayMs, payload, strings.Join(args[4:], " "))
	if err != nil {
		log.Fatal(err)
	}
	if created {
		fmt.Println("created", id)
	} else {
		fmt.Println(id, "was pushed before")
	}
}
