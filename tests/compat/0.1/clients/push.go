// Stores one message in a dueq queue, due DELAY_MS from now by Redis's clock.
//
// usage: go run push.go QUEUE ID DELAY_MS PAYLOAD      (PAYLOAD -: standard input, any bytes)
// Needs go-redis (go get github.com/redis/go-redis/v9) and, once on the server that REDIS_URL names, `dueq functions load`.
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var keys = strings.Fields("scheduled ready leases claims messages attrs dead recent nodes meta")

// push returns true if it stored the message, and false if the id was pushed before.
func push(ctx context.Context, client *redis.Client, queue, id, delayMs string, payload []byte) (bool, error) {
	names := make([]string, len(keys)) // all ten, in this order
	for i, key := range keys {
		names[i] = fmt.Sprintf("dueq:{%s}:%s", queue, key)
	}
	// A client sends a call again when its connection breaks. The script recognises the repetition for ten seconds.
	now, err := client.Time(ctx).Result()
	if err != nil {
		return false, err
	}
	us := now.Add(10 * time.Second).UnixMicro()
	attempt := fmt.Sprintf("%d.%03d %s", us/1000, us%1000, rand.Text())
	reply, err := client.FCall(ctx, "dueq_push", names, "", attempt, id, "+"+delayMs, payload, "").Slice()
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
	if len(args) != 4 {
		log.Fatal("usage: QUEUE ID DELAY_MS PAYLOAD")
	}
	queue, id, delayMs, payload := args[0], args[1], args[2], []byte(args[3])
	if string(payload) == "-" {
		var err error
		if payload, err = io.ReadAll(os.Stdin); err != nil {
			log.Fatal(err)
		}
	}
	options, err := redis.ParseURL(cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379/"))
	if err != nil {
		log.Fatal(err)
	}
	created, err := push(context.Background(), redis.NewClient(options), queue, id, delayMs, payload)
	if err != nil {
		log.Fatal(err)
	}
	if created {
		fmt.Println("created", id)
	} else {
		fmt.Println(id, "was pushed before")
	}
}
