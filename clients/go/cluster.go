package dueq

import (
	"context"
	"net"
	"strconv"
	"strings"
	"sync"
)

const (
	mostRedirects = 5
	slots         = 16_384
)

// sender sends one call to a server; asking says that the slot is on its way there.
type sender func(server *server, asking bool) (any, error)

// cluster has the masters of a cluster, by slot.
type cluster struct {
	settings   settings
	refreshing chan struct{} // held while the slots are read

	mu     sync.Mutex
	seeds  []string
	known  map[string]*server
	ranges []slotRange
	moved  map[int]*server // newer than the ranges
	closed bool
}

type slotRange struct {
	first, last int64
	server      *server
}

func newCluster(settings settings, seeds ...string) *cluster {
	return &cluster{
		settings: settings, seeds: seeds, refreshing: make(chan struct{}, 1),
		known: map[string]*server{}, moved: map[int]*server{},
	}
}

// at is the server at an address. The caller holds mu.
func (c *cluster) at(address string) *server {
	found := c.known[address]
	if found == nil {
		found = c.settings.at("tcp", address)
		c.known[address] = found
		if c.closed {
			found.close()
		}
	}
	return found
}

func (c *cluster) ofKey(ctx context.Context, key string) (*server, error) {
	slot := slotOf(key)
	if err := c.learn(ctx); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if server := c.moved[slot]; server != nil {
		return server, nil
	}
	for _, one := range c.ranges {
		if one.first <= int64(slot) && int64(slot) <= one.last {
			return one.server, nil
		}
	}
	return nil, unavailable("no master of the cluster serves slot %d", slot)
}

// follow sends a call to the server of a key, and on to where the cluster redirects it.
func (c *cluster) follow(ctx context.Context, key string, send sender) (any, error) {
	server, err := c.ofKey(ctx, key)
	if err != nil {
		return nil, err
	}
	asking := false
	for range mostRedirects {
		value, err := send(server, asking)
		if err == nil {
			return value, nil
		}
		failure := asError(err)
		if failure.Code != "MOVED" && failure.Code != "ASK" {
			if failure.Code == "" && failure.isOutage() {
				c.forget() // a failover may have made another server the master
			}
			return nil, err
		}
		slot, address, _ := strings.Cut(failure.detail, " ")
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, failure
		}
		if host == "" {
			host, _, _ = net.SplitHostPort(server.address)
		}
		asking = failure.Code == "ASK"
		c.mu.Lock()
		server = c.at(net.JoinHostPort(host, port))
		if number, err := strconv.Atoi(slot); err == nil && !asking {
			c.moved[number] = server
		}
		c.mu.Unlock()
	}
	return nil, unavailable("the servers of the cluster redirect in a circle")
}

func (c *cluster) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ranges, c.moved = nil, map[int]*server{}
}

// learn asks the servers in turn for the slots, unless they are known.
func (c *cluster) learn(ctx context.Context) error {
	c.mu.Lock()
	isKnown := len(c.ranges) > 0
	c.mu.Unlock()
	if isKnown {
		return nil
	}
	select {
	case c.refreshing <- struct{}{}:
	case <-ctx.Done():
		return abandoned(ctx, AppliedNo)
	}
	defer func() { <-c.refreshing }()
	c.mu.Lock()
	isKnown = len(c.ranges) > 0 // another caller has read them meanwhile
	var candidates []*server
	for _, seed := range c.seeds {
		c.at(seed)
	}
	for _, server := range c.known {
		candidates = append(candidates, server)
	}
	c.mu.Unlock()
	if isKnown {
		return nil
	}
	last := error(unavailable("the cluster serves no slots"))
	for _, server := range candidates {
		value, err := server.call(ctx, false, "CLUSTER", "SLOTS")
		if err != nil {
			last = asError(err).with(AppliedNo)
			continue
		}
		c.mu.Lock()
		c.ranges = c.readSlots(server, value)
		isKnown = len(c.ranges) > 0
		c.mu.Unlock()
		if isKnown {
			return nil
		}
	}
	return last
}

// readSlots reads the reply to CLUSTER SLOTS: first slot, last slot, and the place of the master.
func (c *cluster) readSlots(asked *server, value any) []slotRange {
	var ranges []slotRange
	rows, _ := value.([]any)
	for _, row := range rows {
		cells, _ := row.([]any)
		if len(cells) < 3 {
			continue
		}
		first, ok := cells[0].(int64)
		last, ok2 := cells[1].(int64)
		master, _ := cells[2].([]any)
		if !ok || !ok2 || len(master) < 2 {
			continue
		}
		host, _ := master[0].(string)
		if host == "" {
			host, _, _ = net.SplitHostPort(asked.address)
		}
		port, _ := master[1].(int64)
		ranges = append(ranges, slotRange{first, last, c.at(net.JoinHostPort(host, strconv.FormatInt(port, 10)))})
	}
	return ranges
}

func (c *cluster) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, server := range c.known {
		server.close()
	}
}

// slotOf is the slot of a key: the CRC-16 (XMODEM) of what is between its braces.
func slotOf(key string) int {
	crc := uint16(0)
	for _, one := range []byte(partOf(key)) {
		crc ^= uint16(one) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= 0x1021
			}
		}
	}
	return int(crc) % slots
}
