package dueq

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// home is the tag of the partition with index 0.
const home = "-"

var (
	suffixes = []string{
		"scheduled", "ready", "leases", "claims", "messages", "attrs", "dead", "recent", "nodes", "meta",
	}
	badInName = regexp.MustCompile(`[\x00-\x1f\x7f/{}]`)
	tagForm   = regexp.MustCompile(`^(-|0|[1-9][0-9]{0,8})$`)
	epochForm = regexp.MustCompile(`^[1-9][0-9]{0,15}$`)
)

// keys of one partition: the ten of a script in their order, its wake-up list, and the channel of its notices.
type keys struct {
	ten                []string
	meta, wake, notice string
}

func keysOf(queue, tag string) (keys, error) {
	if len(queue) < 1 || len(queue) > 128 || !utf8.ValidString(queue) || badInName.MatchString(queue) {
		return keys{}, invalid("queue name %.40q of %d bytes: a name has 1 to 128 bytes, UTF-8, no control characters and none of / { }",
			queue, len(queue))
	}
	if tag != home {
		queue += "/" + tag
	}
	base := "dueq:{" + queue + "}:"
	found := keys{wake: base + "wake", notice: base + "notice"}
	for _, suffix := range suffixes {
		found.ten = append(found.ten, base+suffix)
	}
	found.meta = found.ten[len(found.ten)-1]
	return found, nil
}

// step says where a call goes: the tag of a partition, and the fence `m7`, or `p7` of a probe; empty without a map.
type step struct{ tag, fence string }

// partitionMap has the tags of a queue's partitions, before and after a change.
// The new list is empty while the queue is being deleted.
type partitionMap struct {
	epoch            int64
	oldTags, newTags []string
	text             string
}

// parseMap reads `EPOCH|OLD TAGS|NEW TAGS`.
func parseMap(queue, text string) (*partitionMap, error) {
	found, err := readParts(text)
	if err != nil {
		text := fmt.Sprintf("the map of the partitions of queue %s cannot be read: %s in %.200q (`dueq doctor %s`)", queue, err, text, queue)
		return nil, &Error{Kind: KindServer, Applied: AppliedNo, Text: text}
	}
	return found, nil
}

func readParts(text string) (*partitionMap, error) {
	parts := strings.Split(text, "|")
	if len(parts) != 3 {
		return nil, fmt.Errorf("%d parts", len(parts))
	}
	epoch, err := strconv.ParseInt(parts[0], 10, 64)
	if err != nil || !epochForm.MatchString(parts[0]) || epoch >= 1<<53 {
		return nil, fmt.Errorf("no epoch")
	}
	before, err := readTags(parts[1])
	if err != nil {
		return nil, err
	}
	after, err := readTags(parts[2])
	if err != nil {
		return nil, err
	}
	if len(before) == 0 {
		return nil, fmt.Errorf("no partition 0")
	}
	return &partitionMap{epoch, before, after, text}, nil
}

func readTags(text string) ([]string, error) {
	if text == "" {
		return nil, nil
	}
	tags := strings.Split(text, " ")
	seen := make(map[string]bool, len(tags))
	for _, tag := range tags {
		if !tagForm.MatchString(tag) {
			return nil, fmt.Errorf("a tag that is neither - nor a number up to 999999999")
		}
		if seen[tag] {
			return nil, fmt.Errorf("a tag twice")
		}
		seen[tag] = true
	}
	if tags[0] != home {
		return nil, fmt.Errorf("no partition 0")
	}
	if len(tags) > 256 {
		return nil, fmt.Errorf("more than 256 partitions")
	}
	return tags, nil
}

// steps are the calls that name this id, in their order: while the partitions change, first a probe at the old one.
// A queue without a map has one partition, and a queue that is being deleted has none.
func (m *partitionMap) steps(id string) []step {
	if m == nil {
		return []step{{home, ""}}
	}
	if len(m.newTags) == 0 {
		return nil
	}
	before, after := m.oldTags[indexOf(id, len(m.oldTags))], m.newTags[indexOf(id, len(m.newTags))]
	last := step{after, fmt.Sprint("m", m.epoch)}
	if before == after {
		return []step{last}
	}
	return []step{{before, fmt.Sprint("p", m.epoch)}, last}
}

// tags are all partitions that may have messages.
func (m *partitionMap) tags() []string {
	if m == nil {
		return []string{home}
	}
	all := slices.Clone(m.oldTags)
	for _, tag := range m.newTags {
		if !slices.Contains(all, tag) {
			all = append(all, tag)
		}
	}
	return all
}

func (m *partitionMap) isSettled() bool { return m == nil || slices.Equal(m.oldTags, m.newTags) }

// keeps holds if the id belongs to this partition by both lists.
func (m *partitionMap) keeps(id, tag string) bool {
	if m == nil {
		return true
	}
	for _, tags := range [][]string{m.oldTags, m.newTags} {
		if len(tags) > 0 && tags[indexOf(id, len(tags))] != tag {
			return false
		}
	}
	return true
}

// fence is that of a call which names no partition by an id.
func (m *partitionMap) fence() string {
	if m == nil {
		return ""
	}
	return fmt.Sprint("m", m.epoch)
}

func sameMap(a, b *partitionMap) bool {
	return (a == nil) == (b == nil) && (a == nil || a.text == b.text)
}

// partOf is the part of an id that decides: the bytes between its first `{` and the next `}`, else all of it.
func partOf(id string) string {
	raw := []byte(id)
	if from := bytes.IndexByte(raw, '{') + 1; from > 0 {
		if length := bytes.IndexByte(raw[from:], '}'); length > 0 {
			return id[from : from+length]
		}
	}
	return id
}

// indexOf is the index of the partition that holds the id.
func indexOf(id string, partitions int) int {
	return int(uint64(crc32.ChecksumIEEE([]byte(partOf(id)))) * uint64(partitions) >> 32)
}

// idOfFollowUp is an id for a follow-up message that belongs to the partition of its parent.
func idOfFollowUp(parent string, number int) string {
	if len(partOf(parent)) == len(parent) {
		parent = "{" + parent + "}"
	}
	return fmt.Sprintf("%s/%d", parent, number)
}
