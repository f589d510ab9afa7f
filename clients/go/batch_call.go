package dueq

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// batchCall is a batch that is sent until each of its items has a result.
type batchCall struct {
	lane     *lane
	batch    []*item
	patience *patience
	began    time.Duration
	attempt  *attempt
	repeated bool
}

func (c *batchCall) finish() {
	for {
		c.send()
		if len(c.batch) == 0 {
			return
		}
		c.patience.pause(context.Background())
	}
}

func (c *batchCall) send() {
	prefix, err := c.prefix()
	if err != nil {
		if failure := asError(err); !c.patience.allows(failure, true) {
			c.fail(failure)
		}
		return
	}
	if c.lane.verb == "ack" {
		c.sortByClaim()
	}
	verb := strings.TrimSuffix(c.lane.verb, "_dead")
	read, err := c.lane.partition.callDurably(c.lane.durability, verb, c.lane.fence, append(prefix, c.arguments()...)...)
	var texts []string
	if err == nil {
		texts, err = resultTexts(verb, read, len(c.batch))
	}
	if err != nil {
		c.notReplied(asError(err))
		return
	}
	batch, missing := c.batch, read.missing
	mayRepeat := missing != nil && c.patience.allows(missing, true)
	var again []*item
	c.batch = nil
	for at, text := range texts {
		one := batch[at]
		switch {
		case missing == nil || !isChange(verb, text):
			c.judge(one, text, read.nowUs)
		case mayRepeat && one.repeatable:
			again = append(again, one) // another master may lack the change
		case missing.Kind == KindUnconfirmed:
			one.finish(answer{}, missing)
		default:
			one.finish(answer{}, unconfirmed(verb, "the wait for it failed: "+missing.Text))
		}
	}
	if len(again) > 0 {
		c.batch, c.repeated = append(c.batch, again...), true
	} else if len(c.batch) > 0 {
		c.attempt, c.repeated = nil, false // the items that are left are sent as a new call
	}
}

// prefix is what is sent before the items.
func (c *batchCall) prefix() ([]any, error) {
	ctx := context.Background()
	switch c.lane.verb {
	case "push", "upsert":
		if c.attempt == nil {
			made, err := c.lane.partition.newAttempt(ctx)
			if err != nil {
				return nil, err
			}
			c.attempt = made
		}
		return []any{c.attempt.argument}, nil
	case "cancel", "cancel_dead":
		dead := ""
		if c.lane.verb == "cancel_dead" {
			dead = "1"
		}
		if !c.repeated {
			return []any{dead}, nil
		}
		since, err := c.lane.partition.since(ctx, c.began)
		return []any{strings.TrimSpace(fmt.Sprintf("%s since=%d", dead, since))}, err
	}
	return nil, nil
}

// sortByClaim puts the items of one claim side by side: an ack names each claim once.
func (c *batchCall) sortByClaim() {
	slices.SortStableFunc(c.batch, func(a, b *item) int {
		return strings.Compare(a.arguments[0].(string), b.arguments[0].(string))
	})
}

func (c *batchCall) arguments() []any {
	var arguments []any
	if c.lane.verb != "ack" {
		for _, one := range c.batch {
			arguments = append(arguments, one.arguments...)
		}
		return arguments
	}
	for from := 0; from < len(c.batch); {
		token := c.batch[from].arguments[0]
		to := from + 1
		for to < len(c.batch) && c.batch[to].arguments[0] == token {
			to++
		}
		arguments = append(arguments, token, to-from)
		for _, one := range c.batch[from:to] {
			arguments = append(arguments, one.arguments[1])
		}
		from = to
	}
	return arguments
}

// judge gives a result to its caller, or keeps the item for a new call.
func (c *batchCall) judge(one *item, text string, nowUs int64) {
	then := isFinal
	if c.attempt != nil {
		then = verdictOf(text, c.repeated, c.attempt.latestStartUs)
	}
	verb := c.lane.verb
	switch then {
	case sendAgain:
		late := &Error{Kind: KindTimeout, Applied: AppliedNo, Text: verb + " was too late: the server's clock was set"}
		if c.patience.allows(late, true) {
			c.batch = append(c.batch, one)
		} else {
			one.finish(answer{}, late)
		}
	case isUnknown:
		why := verb + " was repeated for up to " + patienceLimit.String() + " and its first reply was lost"
		one.finish(answer{}, &Error{Kind: KindTimeout, Applied: AppliedUnknown, Text: why})
	default:
		one.finish(answer{text, nowUs, c.repeated}, nil)
	}
}

func (c *batchCall) notReplied(failure *Error) {
	if failure.isRemapped() {
		if c.repeated {
			failure = failure.ofRepeated()
		}
		for _, one := range c.batch {
			one.finish(answer{}, &refusal{failure})
		}
		c.batch = nil
		return
	}
	var again []*item
	c.batch = slices.DeleteFunc(c.batch, func(one *item) bool {
		mayRepeat := c.patience.allows(failure, one.repeatable)
		if mayRepeat {
			again = append(again, one)
		}
		return mayRepeat
	})
	c.fail(failure)
	c.batch = again
	c.repeated = c.repeated || failure.Applied != AppliedNo
}

func (c *batchCall) fail(failure *Error) {
	if c.repeated {
		failure = failure.ofRepeated()
	}
	for _, one := range c.batch {
		one.finish(answer{}, failure)
	}
	c.batch = nil
}

func resultTexts(verb string, read *reply, items int) ([]string, error) {
	texts, ok := read.texts(0)
	if ok && len(texts) == 1 && (verb == "push" || verb == "ack") {
		return slices.Repeat(texts, items), nil // one result stands for all items
	}
	if !ok || len(texts) != items {
		return nil, unexpected(verb, read.body)
	}
	return texts, nil
}
