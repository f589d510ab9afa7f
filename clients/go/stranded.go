package dueq

import (
	"context"
	"fmt"
	"strings"
)

// endStranded ends a batch that stays on its way to another partition for 2.5 s: who moved it may be dead.
func (n *node) endStranded(moving, fence string) {
	ctx, own := context.Background(), n.partition
	words := strings.Fields(moving)
	if len(words) < 2 {
		return
	}
	tag := words[1]
	err := func() error {
		departed, err := own.call(ctx, "depart", fence, "", 0, tag, 5_000)
		if err != nil || departed.number(0) == 0 {
			return err
		}
		number := departed.number(0)
		target, err := newPartition(own.servers, own.queue, tag)
		if err != nil {
			return err
		}
		arrived, err := target.callPatiently(ctx, "arrive", fence, own.tag, number, "")
		if err != nil {
			return err
		}
		word, _, _ := strings.Cut(arrived.text(0), " ")
		if ends := map[string]string{"VOID": "back", "APPLIED": "done"}[word]; ends != "" {
			_, err = own.callPatiently(ctx, "depart", fence, fmt.Sprintf("%s=%d", ends, number), 0, tag, 5_000)
		}
		return err
	}()
	if err != nil {
		n.log.Warn("a batch stays on its way to another partition", "error", err)
	}
}
