// usage: program push QUEUE FILE | program work QUEUE     (REDIS_URL names the server)
package main

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strconv"
	"sync"
	"time"

	dueq "github.com/dueq/dueq/clients/go"
)

type message struct {
	ID      []byte `json:"id_base64"`
	Payload []byte `json:"payload_base64"`
	At      int64  `json:",string"`
}

func push(queue *dueq.Queue, path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		log.Fatal(err)
	}
	var all sync.WaitGroup
	slots := make(chan bool, 500)
	for line := range bytes.Lines(text) {
		var one message
		if err := json.Unmarshal(line, &one); err != nil {
			log.Fatal(err)
		}
		slots <- true
		all.Go(func() {
			id := dueq.ID(string(one.ID))
			receipt, err := queue.Push(context.Background(), one.Payload, id, dueq.Due(time.UnixMilli(one.At)))
			if err != nil || receipt.Outcome != dueq.Created {
				log.Fatal(receipt, err)
			}
			<-slots
		})
	}
	all.Wait()
}

func record(_ context.Context, delivery *dueq.Delivery) error {
	now := time.Now().UnixMilli()
	// One write for each run, which a kill does not tear apart.
	_, err := fmt.Printf("%d %x %d %x\n", now, delivery.ID, delivery.Attempt, sha1.Sum(delivery.Payload))
	time.Sleep(20 * time.Millisecond)
	return err
}

func main() {
	client, err := dueq.Connect(os.Getenv("REDIS_URL"))
	if err != nil {
		log.Fatal(err)
	}
	queue := client.Queue(os.Args[2])
	if os.Args[1] == "push" {
		push(queue, os.Args[3])
		return
	}
	milliseconds, err := strconv.Atoi(os.Getenv("LEASE_MS"))
	if err != nil {
		log.Fatal(err)
	}
	lease := dueq.Lease(time.Duration(milliseconds) * time.Millisecond)
	log.Fatal(client.Worker().Queue(queue, record, dueq.Concurrency(32), lease).Run(context.Background()))
}
