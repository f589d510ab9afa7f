package dueq

import (
	"context"
	"fmt"
	"strings"
	"time"
)

const (
	errorBytes  = 1_024
	settlePause = 100 * time.Millisecond
)

// settle repeats a settlement at least until the lease ends, and falls back to a retry if the script refuses it.
func (c *consumer) settle(one *held, settlement Settlement) {
	delivery := one.delivery
	for {
		outcome, err := c.settled(one, settlement)
		if err == nil {
			if outcome == settledGone || outcome == settledLost {
				c.log.Info("the delivery was settled before, or its lease was lost", "id", delivery.ID, "verb", settlement.verb, "outcome", outcome)
			}
			return
		}
		failure := asError(err)
		c.mu.Lock()
		isOurs := mono() < one.expires
		c.mu.Unlock()
		switch {
		case (failure.Kind == KindInvalidInput || failure.Kind == KindFull) && settlement.verb != "retry":
			reason := fmt.Errorf("%s was refused: %w", settlement.verb, err)
			settlement = RetryAfter(reason, c.settings.retry(delivery.Attempt))
		case (failure.Retryable() || failure.Kind == KindDenied) && isOurs:
			// A right may be missing for a moment only, as while users are renewed.
			time.Sleep(settlePause)
		default:
			c.log.Error("the delivery was not settled, and comes again", "id", delivery.ID, "verb", settlement.verb, "error", err)
			return
		}
	}
}

func (c *consumer) settled(one *held, settlement Settlement) (Outcome, error) {
	verb, delivery, router := settlement.verb, one.delivery, c.queue.router
	text := strings.ToValidUTF8(settlement.text[:min(len(settlement.text), errorBytes)], "")
	arguments := []any{delivery.ID, delivery.token}
	word := ""
	switch verb {
	case "ack":
		arguments = []any{delivery.token, delivery.ID}
	case "ack_push":
		return c.ackAndPush(one, settlement.messages)
	case "release":
	case "bury":
		arguments = append(arguments, text)
	default:
		made, err := settlement.word()
		if err != nil {
			return "", err
		}
		word = made
		arguments = append(arguments, word)
		if verb == "retry" {
			arguments = append(arguments, text)
		}
	}
	ctx := context.Background()
	found, err := router.lane(laneKey{tag: one.partition.tag, verb: verb}).submit(true, arguments...).wait(ctx)
	if err != nil {
		return "", err
	}
	read, err := readResult(verb, found.text)
	if err == nil && verb == "throttle" && read.outcome == settledUntil {
		for _, tag := range router.current().tags() {
			if tag != one.partition.tag {
				if _, err := router.partition(tag).callPatiently(ctx, "throttle", "", "close", word); err != nil {
					return "", err
				}
			}
		}
	}
	return read.outcome, err
}

// ackAndPush acks and stores the follow-ups in one step, but for those that the partitions' change takes elsewhere.
func (c *consumer) ackAndPush(one *held, messages []Message) (Outcome, error) {
	if len(messages) < 1 || len(messages) > 100 {
		return "", invalid("AckAnd takes 1 to 100 messages, not %d", len(messages))
	}
	ctx, router, delivery := context.Background(), c.queue.router, one.delivery
	named := make([]Message, len(messages))
	for at, message := range messages {
		named[at] = message.named(idOfFollowUp(delivery.ID, at+1))
		if err := named[at].err; err != nil {
			return "", err
		}
	}
	for {
		newest := router.current()
		var here []Message
		var words []any
		for _, message := range named {
			switch {
			case newest.keeps(message.id, one.partition.tag):
				here, words = append(here, message), append(words, message.arguments()...)
			case newest.isSettled():
				return "", invalid("the follow-up %q is of another partition: let the library name it", message.id)
			default:
				if _, err := c.queue.push(ctx, message); err != nil {
					return "", err
				}
			}
		}
		if len(here) == 0 {
			return c.settled(one, Ack())
		}
		read, err := one.partition.callPatiently(ctx, "ack_push", newest.fence(), append([]any{delivery.token + delivery.ID}, words...)...)
		if err != nil {
			failure := asError(err)
			if !failure.isRemapped() || failure.Applied != AppliedNo {
				return "", err
			}
			if isNewer, failed := router.refresh(ctx); failed != nil || !isNewer {
				return "", err
			}
			named = here
			continue
		}
		if read.text(0) == "REFUSED" {
			texts, _ := read.texts(1)
			for _, text := range texts {
				if _, err := readResult("ack_push", text); err != nil {
					return "", err
				}
			}
		}
		found, err := readResult("ack", read.text(0))
		return found.outcome, err
	}
}
