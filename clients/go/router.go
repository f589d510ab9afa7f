package dueq

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	movingPause  = 20 * time.Millisecond
	searchedTags = 64
)

// router has the partitions of one queue, by the newest map that this client has seen.
type router struct {
	servers    *servers
	queue      string
	refreshing chan struct{} // held while the map is read

	mu         sync.Mutex
	newest     *partitionMap
	isLearned  bool
	partitions map[string]*partition
	lanes      map[laneKey]*lane
}

type laneKey struct {
	tag, verb, fence string
	durability       Durability
}

func newRouter(servers *servers, queue string) (*router, error) {
	_, err := keysOf(queue, home)
	return &router{
		servers: servers, queue: queue, refreshing: make(chan struct{}, 1),
		partitions: map[string]*partition{}, lanes: map[laneKey]*lane{},
	}, err
}

// current is the newest map; nil for a queue of one partition.
func (r *router) current() *partitionMap {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.newest
}

func (r *router) partition(tag string) *partition {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.partitionLocked(tag)
}

func (r *router) partitionLocked(tag string) *partition {
	found := r.partitions[tag]
	if found == nil {
		found, _ = newPartition(r.servers, r.queue, tag) // the name of the queue was checked
		r.partitions[tag] = found
	}
	return found
}

func (r *router) lane(key laneKey) *lane {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := r.lanes[key]
	if found == nil {
		for other, old := range r.lanes { // of maps that are past
			if other.fence != "" && other.fence != key.fence && old.isIdle() {
				delete(r.lanes, other)
			}
		}
		found = newLane(r.partitionLocked(key.tag), key)
		r.lanes[key] = found
	}
	return found
}

// drain waits for the calls that are under way.
func (r *router) drain() {
	r.mu.Lock()
	var lanes []*lane
	for _, one := range r.lanes {
		lanes = append(lanes, one)
	}
	r.mu.Unlock()
	for _, one := range lanes {
		one.drain()
	}
}

// send makes one call at a partition.
type send func(ctx context.Context, partition *partition, fence string) (answer, error)

// item sends one item in a batch of its partition.
func (r *router) item(
	ctx context.Context, durability Durability, verb, id string, repeatable bool, arguments ...any,
) (answer, error) {
	return r.routed(ctx, id, func(ctx context.Context, partition *partition, fence string) (answer, error) {
		return r.lane(laneKey{partition.tag, verb, fence, durability}).submit(repeatable, arguments...).wait(ctx)
	})
}

// isRefusedForGood: an earlier try may have been applied at a partition that has another map now.
func isRefusedForGood(failure *Error) bool {
	return failure.Applied != AppliedNo && failure.Code != "BEHIND"
}

// messages sends many messages with one verb, as few calls as their partitions allow.
func (r *router) messages(ctx context.Context, durability Durability, messages []Message) ([]answer, []error) {
	answers, errs := make([]answer, len(messages)), make([]error, len(messages))
	if err := r.learn(ctx); err != nil {
		for at := range errs {
			errs[at] = err
		}
		return answers, errs
	}
	newest := r.current()
	items, ofLanes := make([]*item, len(messages)), map[*lane][]*item{}
	var routed sync.WaitGroup
	single := func(at int) {
		one := messages[at]
		answers[at], errs[at] = r.item(ctx, durability, one.verb(), one.id, one.repeatable, one.arguments()...)
	}
	for at, one := range messages {
		if steps := newest.steps(one.id); len(steps) == 1 {
			lane := r.lane(laneKey{steps[0].tag, one.verb(), steps[0].fence, durability})
			items[at] = lane.item(one.repeatable, one.arguments()...)
			ofLanes[lane] = append(ofLanes[lane], items[at])
			continue
		}
		routed.Add(1)
		go func() {
			defer routed.Done()
			single(at)
		}()
	}
	for lane, all := range ofLanes {
		lane.submitAll(all)
	}
	for at, sent := range items {
		if sent == nil {
			continue
		}
		found, err := sent.wait(ctx)
		var refused *refusal
		switch isRefused := errors.As(err, &refused); {
		case isRefused && isRefusedForGood(refused.failure):
			errs[at] = refused.failure
		case isRefused, err == nil && found.text == "MOVING" && !found.repeated:
			single(at)
		default:
			answers[at], errs[at] = found, err
		}
	}
	routed.Wait()
	return answers, errs
}

// get calls `get`. Its reply is no result of an item: `AWAY` is an empty one, and `MOVING` is an error.
func (r *router) get(ctx context.Context, id string) (stored *StoredMessage, end *MessageEnd, err error) {
	_, err = r.routed(ctx, id, func(ctx context.Context, partition *partition, fence string) (answer, error) {
		isProbe := strings.HasPrefix(fence, "p")
		read, err := partition.callPatiently(ctx, "get", fence, id)
		if err != nil {
			failure := asError(err)
			switch {
			case failure.isRemapped():
				return answer{}, &refusal{failure}
			case failure.Code == "MOVING":
				return answer{text: "MOVING"}, nil
			}
			return answer{}, failure.with(AppliedNo)
		}
		message, ended, err := readGet(read, id)
		if err != nil {
			return answer{}, asError(err).with(AppliedNo)
		}
		if isProbe {
			stored, end = nil, nil
		}
		if message != nil || ended != nil {
			stored, end = message, ended
		}
		// A message decides. How one ended counts only if the new partition has no message.
		if message == nil && isProbe {
			return answer{text: "AWAY"}, nil
		}
		return answer{text: "FOUND"}, nil
	})
	return stored, end, err
}

func (r *router) routed(ctx context.Context, id string, send send) (answer, error) {
	patience, movingUntil := newPatience(), time.Duration(0)
	if err := r.learn(ctx); err != nil {
		return answer{}, err
	}
	for {
		newest := r.current()
		steps := newest.steps(id)
		if len(steps) == 0 {
			refused := unavailable("the queue %s is being deleted", r.queue)
			if err := r.waitForMap(ctx, newest, "", refused, patience); err != nil {
				return answer{}, err
			}
			continue
		}
		found, tag, err := r.sendSteps(ctx, steps, send)
		var refused *refusal
		if errors.As(err, &refused) {
			if isRefusedForGood(refused.failure) {
				return answer{}, refused.failure
			}
			if err := r.waitForMap(ctx, newest, tag, refused.failure, patience); err != nil {
				return answer{}, err
			}
			continue
		}
		if err != nil || found.text != "MOVING" {
			return found, err
		}
		if found.repeated {
			failure := unavailable("the message %q is on its way to another partition, and the first reply was lost", id)
			return answer{}, failure.with(AppliedUnknown)
		}
		if movingUntil == 0 {
			movingUntil = mono() + patienceLimit
		}
		if mono() > movingUntil {
			return answer{}, unavailable("the message %q has been on its way to another partition for %s", id, patienceLimit)
		}
		if !sleep(ctx, movingPause) {
			return answer{}, abandoned(ctx, AppliedNo)
		}
	}
}

// sendSteps probes at the old partition, and goes on to the new one if the message is not there. It returns the tag
// that it has asked last.
func (r *router) sendSteps(ctx context.Context, steps []step, send send) (answer, string, error) {
	first := steps[0]
	found, err := send(ctx, r.partition(first.tag), first.fence)
	if err != nil || len(steps) == 1 || !strings.HasPrefix(found.text, "AWAY") {
		return found, first.tag, err
	}
	last, remembered := steps[1], strings.TrimPrefix(found.text, "AWAY ")
	if found.text == "AWAY" {
		found, err = send(ctx, r.partition(last.tag), last.fence)
		return found, last.tag, err
	}
	known := answer{remembered, found.nowUs, found.repeated}
	found, err = send(ctx, r.partition(last.tag), "p"+last.fence[1:])
	if err == nil && strings.HasPrefix(found.text, "AWAY") {
		found = known
	}
	return found, last.tag, err
}

// waitForMap learns the newest map after a refusal, and pauses if there is no newer one.
func (r *router) waitForMap(ctx context.Context, seen *partitionMap, tag string, refused *Error, patience *patience) error {
	behind := ""
	if refused.Code == "BEHIND" {
		behind = tag
	}
	failure := unavailable("%s", refused.Text)
	isNewer, err := r.refreshFrom(ctx, seen, behind)
	if isNewer && err == nil {
		return nil
	}
	if err != nil {
		failure = asError(err)
	}
	if !patience.allows(failure, true) {
		return failure
	}
	if !patience.pause(ctx) {
		return abandoned(ctx, AppliedNo)
	}
	return nil
}

// refresh reads the map again, as after a header with another epoch. It returns whether it changed.
func (r *router) refresh(ctx context.Context) (bool, error) {
	return r.refreshFrom(ctx, r.current(), "")
}

// refreshFrom reads the map at the home. It returns whether it is another one than `seen`.
func (r *router) refreshFrom(ctx context.Context, seen *partitionMap, behind string) (bool, error) {
	select {
	case r.refreshing <- struct{}{}:
	case <-ctx.Done():
		return false, abandoned(ctx, AppliedNo)
	}
	defer func() { <-r.refreshing }()
	if !sameMap(r.current(), seen) { // another caller has read it meanwhile
		return true, nil
	}
	newest, err := r.partition(home).readMap(ctx)
	if err != nil {
		return false, err
	}
	if seen != nil && (newest == nil || newest.epoch < seen.epoch) {
		if newest == nil {
			isElsewhere, err := r.isElsewhere(ctx, seen)
			if err != nil {
				return false, err
			}
			if !isElsewhere {
				r.set(nil) // the queue is back at one partition
				return true, nil
			}
		}
		// The home's master has lost its data, and nobody else tells it of this map.
		_, err := r.partition(home).callPatiently(ctx, "remap", "", "forward", seen.text)
		return false, err
	}
	if !sameMap(newest, seen) {
		r.set(newest)
		return true, nil
	}
	if seen != nil {
		for _, tag := range seen.newTags {
			if tag == behind {
				_, err := r.partition(behind).callPatiently(ctx, "remap", "", "forward", seen.text)
				return false, err
			}
		}
	}
	return false, nil
}

func (r *router) set(newest *partitionMap) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.newest = newest
}

// isElsewhere holds if another partition of this map still has it.
func (r *router) isElsewhere(ctx context.Context, seen *partitionMap) (bool, error) {
	for _, tag := range seen.newTags {
		if tag != home {
			found, err := r.partition(tag).readMap(ctx)
			return found != nil, err
		}
	}
	return false, nil
}

// learn reads the map before the first call to a cluster, also from other partitions if the home is away.
func (r *router) learn(ctx context.Context) error {
	r.mu.Lock()
	isLearned := r.isLearned
	r.mu.Unlock()
	if isLearned {
		return nil
	}
	isCluster, err := r.servers.isCluster()
	if err != nil && asError(err).isOutage() {
		return nil // the call itself finds out, and is repeated
	}
	if err != nil {
		return err
	}
	if isCluster {
		_, err = r.refreshFrom(ctx, nil, "")
	}
	if err != nil {
		if !asError(err).isOutage() || ctx.Err() != nil {
			return err
		}
		r.search(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isLearned = true
	return nil
}

// search takes the newest map that any partition has.
func (r *router) search(ctx context.Context) {
	found := make(chan *partitionMap, searchedTags)
	for tag := range searchedTags {
		go func() {
			one, err := r.partition(strconv.Itoa(tag)).readMap(ctx)
			if err != nil {
				one = nil
			}
			found <- one
		}()
	}
	var newest *partitionMap
	for range searchedTags {
		if one := <-found; one != nil && (newest == nil || one.epoch > newest.epoch) {
			newest = one
		}
	}
	r.set(newest)
}
