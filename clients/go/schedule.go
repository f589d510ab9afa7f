package dueq

import (
	"fmt"
	"strings"
	"time"
)

const mostMissed = 1_000

// MissedPolicy says which of several due fires become ticks, after a time without workers.
type MissedPolicy string

// The policies of missed fires: the newest one, none, or all of them.
const (
	MissedOne  MissedPolicy = "one"
	MissedSkip MissedPolicy = "skip"
	MissedAll  MissedPolicy = "all"
)

// OverlapPolicy says what a fire does while an earlier tick waits or is leased.
type OverlapPolicy string

// The policies of overlaps.
const (
	OverlapAllow   OverlapPolicy = "allow"
	OverlapSkip    OverlapPolicy = "skip"
	OverlapReplace OverlapPolicy = "replace"
)

// ScheduleState is whether a schedule fires.
type ScheduleState string

// The states of a schedule. Dry: a cron whose list of fires is used up.
const (
	ScheduleActive ScheduleState = "active"
	SchedulePaused ScheduleState = "paused"
	ScheduleDry    ScheduleState = "dry"
	ScheduleEnded  ScheduleState = "ended"
)

// Schedule is a period with a name, a payload and policies; what is zero has its default. Redis makes a tick at each
// fire: a message `NAME@<fire in ms>`. The server judges the values. Crons are declared by the program or by Rust,
// which know the time zones.
type Schedule struct {
	Name         string
	Every        time.Duration
	Payload      []byte
	Anchor       time.Time    // the fires are whole periods from it
	Missed       MissedPolicy // MissedOne by default
	Max          int          // with MissedAll: the newest so many fires; 1,000 by default
	Within       time.Duration
	Overlap      OverlapPolicy // OverlapAllow by default
	Jitter       time.Duration
	Start, End   time.Time
	Limit        int
	MaxAttempts  int
	ExpiresAfter time.Duration
	OnExpire     Expiry // ExpireDead by default
}

// arguments of the script. A word that is given with its default value would be a difference to a schedule without it.
func (s Schedule) arguments() ([]any, error) {
	var failed error
	var spec, options words
	at := func(moment time.Time) any {
		if moment.IsZero() {
			return 0
		}
		ms, err := unixMs(moment)
		if failed == nil {
			failed = err
		}
		return ms
	}
	spec = append(spec, fmt.Sprint("every=", milliseconds(s.Every)))
	spec.add("anchor", at(s.Anchor), 0)
	spec.add("missed", s.Missed, MissedOne)
	spec.add("within", milliseconds(s.Within), 0)
	spec.add("max", s.Max, mostMissed)
	spec.add("overlap", s.Overlap, OverlapAllow)
	spec.add("jitter", milliseconds(s.Jitter), 0)
	spec.add("start", at(s.Start), 0)
	spec.add("end", at(s.End), 0)
	spec.add("limit", s.Limit, 0)
	options.add("max_attempts", s.MaxAttempts, 0)
	if s.ExpiresAfter != 0 {
		options.add("expires", fmt.Sprint("+", milliseconds(s.ExpiresAfter)), "")
	}
	options.add("on_expire", s.OnExpire, ExpireDead)
	return []any{s.Name, strings.Join(spec, " "), "", strings.Join(options, " "), "", s.Payload}, failed
}

type words []string

// add adds a word, unless its value is zero or the default.
func (w *words) add(name string, value, otherwise any) {
	if text := fmt.Sprint(value); text != "" && text != "0" && text != fmt.Sprint(otherwise) {
		*w = append(*w, name+"="+text)
	}
}

// Tick is the schedule that made a message, and the fire that the message stands for.
type Tick struct {
	Schedule string
	Nominal  time.Time
}

func tickOf(one granted) *Tick {
	at := strings.LastIndex(one.id, "@")
	if !one.isTick || at < 0 {
		return nil
	}
	ms := decimal(one.id[at+1:])
	if ms == nil {
		return nil
	}
	return &Tick{one.id[:at], time.UnixMilli(*ms)}
}
