package dueq

import (
	"context"
	"fmt"
	"strings"
	"time"
)

const (
	mostDeclared = 24
	schedulePage = 64
)

// ScheduleChange is a declared schedule, and when it fires next; zero if it does not.
type ScheduleChange struct {
	Name string
	Next time.Time
}

// ScheduleChanges is what an apply did; of a dry run, what it would do.
type ScheduleChanges struct {
	Created, Changed, Kept []ScheduleChange
	Removed                []string
}

// ScheduleInfo is a schedule as the queue has it, and what became of its fires.
type ScheduleInfo struct {
	Name                                        string
	State                                       ScheduleState
	Next                                        time.Time // zero unless it is active
	Made, Missed, Overlapped, Paused, Triggered int64
	Spec, Options, Pattern                      string
}

// ApplyOption is an option of [ScheduleSet.Apply].
type ApplyOption func(*applyOptions)

type applyOptions struct {
	revision string
	words    []string
	isDry    bool
}

// Revision is such as the number of a release. A lower one than the stored one is refused, with the code STALE.
func Revision(number int64) ApplyOption {
	return func(o *applyOptions) { o.revision = fmt.Sprint(number) }
}

// Prune removes the other schedules of the set.
func Prune() ApplyOption { return func(o *applyOptions) { o.words = append(o.words, "prune") } }

// Forget forgets the set and its revision, if it has no schedules then.
func Forget() ApplyOption { return func(o *applyOptions) { o.words = append(o.words, "forget") } }

// FireNow makes a tick of each new schedule at once.
func FireNow() ApplyOption { return func(o *applyOptions) { o.words = append(o.words, "now") } }

// DryRun changes nothing, and answers what would be changed.
func DryRun() ApplyOption {
	return func(o *applyOptions) { o.words, o.isDry = append(o.words, "dry_run"), true }
}

// ScheduleSet is all schedules of one owner, such as those of a service. Made by [Queue.Schedules].
type ScheduleSet struct {
	queue *Queue
	name  string
}

// Schedules is a set of schedules to declare. A queue of several partitions has no schedules.
func (q *Queue) Schedules(set string) *ScheduleSet { return &ScheduleSet{q, set} }

// Apply creates and changes schedules, up to 24: all of them, or none. One that is the same as before stays as it is.
// The first apply gives the queue layout 4, which releases before 0.2 refuse.
func (s *ScheduleSet) Apply(ctx context.Context, schedules []Schedule, options ...ApplyOption) (ScheduleChanges, error) {
	if len(schedules) > mostDeclared {
		return ScheduleChanges{}, invalid(
			"%d schedules: an apply declares up to %d; make several sets of them", len(schedules), mostDeclared)
	}
	var given applyOptions
	for _, option := range options {
		option(&given)
	}
	arguments := []any{s.name, given.revision, strings.Join(given.words, " ")}
	for _, one := range schedules {
		own, err := one.arguments()
		if err != nil {
			return ScheduleChanges{}, err
		}
		arguments = append(arguments, own...)
	}
	var removed []string
	for {
		read, err := s.queue.atHome(ctx, "schedule", arguments...)
		if err != nil {
			return ScheduleChanges{}, err
		}
		changes, err := readDeclared(schedules, read)
		removed = append(removed, changes.Removed...)
		if err != nil || read.number(3) != 1 || given.isDry { // a call removes up to 24
			changes.Removed = removed
			return changes, err
		}
	}
}

// ScheduleHandle is one schedule. Made by [Queue.Schedule].
type ScheduleHandle struct {
	queue *Queue
	name  string
}

// Schedule is one schedule of this queue.
func (q *Queue) Schedule(name string) *ScheduleHandle { return &ScheduleHandle{q, name} }

// Get is the schedule as the queue has it; nil if there is none of this name.
func (h *ScheduleHandle) Get(ctx context.Context) (*ScheduleInfo, error) {
	_, found, err := h.queue.schedulePage(ctx, h.name)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// Pause makes its fires count as paused until Resume. False if there is no such schedule.
func (h *ScheduleHandle) Pause(ctx context.Context) (bool, error) { return h.amend(ctx, "pause") }

// Resume ends a pause.
func (h *ScheduleHandle) Resume(ctx context.Context) (bool, error) { return h.amend(ctx, "resume") }

// Remove removes it; its ticks stay.
func (h *ScheduleHandle) Remove(ctx context.Context) (bool, error) { return h.amend(ctx, "remove") }

func (h *ScheduleHandle) amend(ctx context.Context, change string) (bool, error) {
	read, err := h.queue.atHome(ctx, "amend", change, h.name)
	if err != nil {
		return false, err
	}
	texts, ok := read.texts(0)
	if !ok || len(texts) != 1 {
		return false, unexpected("amend", read.body)
	}
	return texts[0] != "GONE", nil
}

// ListSchedules are all schedules of this queue, in the order of their sets.
func (q *Queue) ListSchedules(ctx context.Context) ([]ScheduleInfo, error) {
	var all []ScheduleInfo
	for cursor := ""; ; {
		next, found, err := q.schedulePage(ctx, cursor, schedulePage, "")
		all = append(all, found...)
		if err != nil || next == "" {
			return all, err
		}
		cursor = next
	}
}

func (q *Queue) schedulePage(ctx context.Context, arguments ...any) (string, []ScheduleInfo, error) {
	read, err := q.atHome(ctx, "schedules", arguments...)
	if err != nil {
		return "", nil, err
	}
	return readSchedules(read)
}

// atHome calls the partition that has the schedules of a queue.
func (q *Queue) atHome(ctx context.Context, verb string, arguments ...any) (*reply, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	return q.router.partition(home).callPatiently(ctx, verb, "", arguments...)
}

func readDeclared(schedules []Schedule, read *reply) (ScheduleChanges, error) {
	word, stored, _ := strings.Cut(read.text(0), " ")
	if word == "STALE" {
		failure := invalid("the set has the newer revision %s: nothing was changed", stored)
		failure.Code = word
		return ScheduleChanges{}, failure
	}
	results, ok := read.texts(1)
	removed, ok2 := read.texts(2)
	if !ok || !ok2 || len(results) != len(schedules) {
		return ScheduleChanges{}, unexpected("schedule", read.body)
	}
	changes, reasons := ScheduleChanges{Removed: removed}, []string(nil)
	for at, one := range schedules {
		result, detail, _ := strings.Cut(results[at], " ")
		change := ScheduleChange{Name: one.Name}
		if ms := decimal(detail); ms != nil && *ms != 0 {
			change.Next = time.UnixMilli(*ms)
		}
		switch result {
		case "CREATED":
			changes.Created = append(changes.Created, change)
		case "CHANGED":
			changes.Changed = append(changes.Changed, change)
		case "KEPT":
			changes.Kept = append(changes.Kept, change)
		case "INVALID":
			reasons = append(reasons, fmt.Sprintf("schedule %q: %s", one.Name, detail))
		}
	}
	switch word {
	case "OK":
		return changes, nil
	case "INVALID":
		return ScheduleChanges{}, invalid("%s (nothing was changed)", strings.Join(reasons, "; "))
	}
	return ScheduleChanges{}, unexpected("schedule", read.body)
}

func readSchedules(read *reply) (string, []ScheduleInfo, error) {
	var items []any
	if len(read.body) > 1 {
		items, _ = read.body[1].([]any)
	}
	found := make([]ScheduleInfo, len(items))
	for at, item := range items {
		fields, _ := item.([]any)
		if len(fields) < 14 {
			return "", nil, unexpected("schedules", read.body)
		}
		ok := true
		text := func(at int) string { value, is := fields[at].(string); ok = ok && is; return value }
		number := func(at int) int64 { value, is := fields[at].(int64); ok = ok && is; return value }
		one := ScheduleInfo{
			Name: text(0), State: ScheduleState(text(1)), Made: number(5), Missed: number(6), Overlapped: number(7),
			Paused: number(8), Triggered: number(9), Spec: text(11), Options: text(12), Pattern: text(13),
		}
		if next := number(2); one.State == ScheduleActive {
			one.Next = time.UnixMilli(next)
		}
		if !ok {
			return "", nil, unexpected("schedules", read.body)
		}
		found[at] = one
	}
	return read.text(0), found, nil
}
