// Stores one message in a dueq queue, due DELAY_MS from now by Redis's clock.
//
// usage: go run push.go QUEUE ID DELAY_MS PAYLOAD [OPTION...]      (PAYLOAD -: standard input, any bytes)
// An OPTION is a word such as max_attempts=5, expires=+7200000, on_expire=drop or cost=3.
// Needs go-redis (go get github.com/redis/go-redis/v9) and, once on the server that REDIS_URL names, `dueq functions load`.
// A library has this and workers, too: https://github.com/dueq/dueq/tree/main/clients/go
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
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var keys = strings.Fields("scheduled ready leases claims messages attrs dead recent nodes meta")

// partitions of a queue; the zero value is that of a queue of one partition
type partitions struct {
	epoch         string
	before, after []string // the tags before and after a change
	text          string   // the map itself
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

// readMap returns false while the queue is being deleted.
func readMap(ctx context.Context, client *redis.Client, queue string) (partitions, bool, error) {
	text, err := client.HGet(ctx, keysOf(queue, "-")[9], "map").Result()
	if err == redis.Nil {
		return partitions{}, true, nil
	} else if err != nil {
		return partitions{}, false, err
	}
	parts := strings.Split(text, "|") // epoch, tags before, tags after a change
	if len(parts) > 3 {
		err := fmt.Errorf("the queue moves between this server and %s, or has moved there", parts[3])
		return partitions{}, false, err
	}
	return partitions{parts[0], strings.Split(parts[1], " "), strings.Split(parts[2], " "), text}, parts[2] != "", nil
}

// tagOf returns the tag of the partition of the id.
func tagOf(tags []string, id string) string {
	if len(tags) == 0 {
		return "-"
	}
	if _, rest, found := strings.Cut(id, "{"); found {
		if part, _, found := strings.Cut(rest, "}"); found && part != "" {
			id = part
		}
	}
	return tags[uint64(crc32.ChecksumIEEE([]byte(id)))*uint64(len(tags))>>32]
}

// call returns the result of a function for the id. It waits for up to ten seconds while the message or map changes.
func call(ctx context.Context, client *redis.Client, queue, id, function string, args ...any) (string, error) {
	for end := time.Now().Add(10 * time.Second); ; {
		known := maps[queue]
		tag, newTag := tagOf(known.before, id), tagOf(known.after, id)
		send := func(form string) (string, error) {
			if known.text == "" {
				form = ""
			}
			reply, err := client.FCall(ctx, function, keysOf(queue, tag), append([]any{form + known.epoch}, args...)...).Slice()
			if err != nil {
				return "", err
			}
			return fmt.Sprint(reply[1].([]any)[0]), nil
		}
		// While the partitions change, a probe asks the old one: it creates nothing. AWAY: the new one decides.
		// A result behind AWAY is that of the call unless the new one has the message.
		result, err := "AWAY", error(nil)
		if tag != newTag {
			result, err = send("p")
		}
		if remembered, away := strings.CutPrefix(result, "AWAY "); away {
			tag = newTag
			if result, err = send("p"); strings.HasPrefix(result, "AWAY") {
				result = remembered
			}
		} else if result == "AWAY" {
			tag = newTag
			result, err = send("m")
		}
		remapped := redis.HasErrorPrefix(err, "REMAPPED")
		behind := redis.HasErrorPrefix(err, "BEHIND")
		if !remapped && !behind && result != "MOVING" || time.Now().After(end) {
			return result, err
		}
		// The partition has another map, and the call did nothing; or the message is on its way to another partition.
		newest, exists, err := readMap(ctx, client, queue)
		if err != nil {
			return "", err
		}
		if exists && newest.text != known.text {
			maps[queue] = newest
		} else if exists && behind && slices.Contains(known.after, tag) {
			if err := client.FCall(ctx, "dueq_remap", keysOf(queue, tag), "", "forward", known.text).Err(); err != nil {
				return "", err
			}
		} else {
			time.Sleep(50 * time.Millisecond)
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
	result, err := call(ctx, client, queue, id, "dueq_push", attempt, id, "+"+delayMs, payload, options)
	switch {
	case err != nil:
		return false, err
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
