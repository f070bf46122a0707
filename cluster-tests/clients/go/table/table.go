// Package table is what the Go programs of the client table share: the records, the checks, the order of the capabilities
// and the lines that are printed.
package table

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// Count is the number of records in each topic.
	Count = 10_000
	// Half is what the two members of a group read before they stop.
	Half = Count / 2
	// GroupPartitions is the number of partitions of the group's topic.
	GroupPartitions = 4
	// Patience is what one step may take.
	Patience = 60 * time.Second
)

// ErrLacking says that the client has no such thing; wrap it with the reason.
var ErrLacking = errors.New("n/a")

// Client is what a program implements on its library.
type Client interface {
	// Create creates a topic of three partitions.
	Create(topic string) error
	// Produce writes all records, with keys, in one codec.
	Produce(topic, codec string) error
	// ReadAll reads three partitions from the beginning, without a group.
	ReadAll(topic string, seen *Seen) error
	// Share runs two members: calls produce when each has its partitions, stops them at half, commits what was processed.
	Share(group, topic string, seen *Seen, produce func() error) (string, error)
	// ReadRest is one member that reads until Count records were seen, and commits.
	ReadRest(group, topic string, seen *Seen) error
	// Lag is the sum over the partitions of end minus committed.
	Lag(group, topic string) (int64, error)
	// Reset sets the group's offsets to the beginning.
	Reset(group, topic string) error
}

// Key of record n.
func Key(n int) string { return fmt.Sprintf("user-%d", n%100) }

// Value of record n.
func Value(n int) string {
	return strconv.Itoa(n) + ":" + strings.Repeat(fmt.Sprintf("clicked on advert %d; ", n%7), 3)
}

type place struct {
	partition int32
	offset    int64
}

// Seen is what consumers of one topic processed, in the order in which they did.
type Seen struct {
	lock    sync.Mutex
	places  map[place]bool
	numbers []int
	homes   map[string]int32
	last    map[string]int
	failure error
	// Leaves the second half of each partition out.
	halfOnly bool
}

// NewSeen is empty.
func NewSeen() *Seen {
	return &Seen{places: map[place]bool{}, homes: map[string]int32{}, last: map[string]int{}}
}

// Add takes a record and says whether it counts as processed: the members of a group stop in the middle of each partition.
// What is wrong with a record is told by Check.
func (s *Seen) Add(partition int32, offset int64, key, value []byte) bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.halfOnly && offset >= Half/GroupPartitions {
		return false
	}
	number, err := strconv.Atoi(strings.SplitN(string(value), ":", 2)[0])
	before, known := s.last[string(key)]
	home, settled := s.homes[string(key)]
	switch at := (place{partition, offset}); {
	case err != nil || string(key) != Key(number) || string(value) != Value(number):
		s.fail("record %d:%d is not what was sent", partition, offset)
	case s.places[at]:
		s.fail("record %d:%d was processed twice", partition, offset)
	case settled && home != partition:
		s.fail("key %s is in two partitions", key)
	case known && number <= before:
		s.fail("key %s: record %d came after %d", key, number, before)
	}
	s.places[place{partition, offset}] = true
	s.homes[string(key)] = partition
	s.last[string(key)] = number
	s.numbers = append(s.numbers, number)
	return true
}

func (s *Seen) fail(format string, args ...any) {
	if s.failure == nil {
		s.failure = fmt.Errorf(format, args...)
	}
}

// Len is the number of records.
func (s *Seen) Len() int {
	s.lock.Lock()
	defer s.lock.Unlock()
	return len(s.numbers)
}

// Positions is, per partition, one past the last offset that was processed.
func (s *Seen) Positions() map[int32]int64 {
	s.lock.Lock()
	defer s.lock.Unlock()
	positions := map[int32]int64{}
	for at := range s.places {
		positions[at.partition] = max(positions[at.partition], at.offset+1)
	}
	return positions
}

// Check gives the first wrong record.
func (s *Seen) Check() error {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.failure
}

// CheckComplete also wants each record, once.
func (s *Seen) CheckComplete() error {
	if err := s.Check(); err != nil {
		return err
	}
	different := map[int]bool{}
	for _, number := range s.numbers {
		different[number] = true
	}
	if len(different) != Count || len(s.numbers) != Count {
		return fmt.Errorf("%d records, %d different ones, of %d", len(s.numbers), len(different), Count)
	}
	return nil
}

// WaitFor waits for a condition.
func WaitFor(what string, condition func() bool) error {
	end := time.Now().Add(Patience)
	for !condition() {
		if time.Now().After(end) {
			return fmt.Errorf("waited %v for %s", Patience, what)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil
}

type runner struct {
	passed map[string]bool
}

func (r *runner) row(capability, needs string, step func() (string, error)) {
	var detail string
	err := fmt.Errorf("builds on %s, which did not pass", needs)
	if needs == "" || r.passed[needs] {
		detail, err = step()
	}
	result := "pass"
	switch {
	case errors.Is(err, ErrLacking):
		result, detail = "n/a", err.Error()
	case err != nil:
		result, detail = "fail", err.Error()
	default:
		r.passed[capability] = true
	}
	line, _ := json.Marshal(map[string]string{"capability": capability, "result": result, "detail": detail})
	fmt.Println(string(line))
}

// Run reads the arguments, asks the client for everything and prints a line per capability.
func Run(connect func(bootstrap string) Client) {
	bootstrap := flag.String("bootstrap", "", "address of the cluster")
	prefix := flag.String("prefix", "", "of the names of topics and groups")
	flag.Parse()
	if *bootstrap == "" || *prefix == "" {
		flag.Usage()
		os.Exit(2)
	}
	client, r := connect(*bootstrap), runner{passed: map[string]bool{}}
	group, topic := *prefix+"-g", *prefix+"-group"
	plain := func(err error) (string, error) { return "", err }
	r.row("create", "", func() (string, error) { return plain(client.Create(*prefix + "-create")) })
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		r.row(codec, "", func() (string, error) { return plain(oneCodec(client, *prefix+"-"+codec, codec)) })
	}
	seen := NewSeen()
	r.row("group", "", func() (string, error) {
		seen.halfOnly = true
		detail, err := client.Share(group, topic, seen, func() error { return client.Produce(topic, "none") })
		seen.halfOnly = false
		return detail, errors.Join(err, seen.Check())
	})
	r.row("lag", "group", func() (string, error) { return plain(checkLag(client, group, topic, Count-seen.Len())) })
	r.row("resume", "group", func() (string, error) {
		before := seen.Len()
		err := readRest(client, group, topic, seen)
		return fmt.Sprintf("%d more records after the restart", seen.Len()-before), err
	})
	r.row("replay", "group", func() (string, error) { return plain(readRest(client, *prefix+"-g2", topic, NewSeen())) })
	r.row("reset", "group", func() (string, error) { return plain(reset(client, group, topic)) })
}

func oneCodec(client Client, topic, codec string) error {
	if err := client.Produce(topic, codec); err != nil {
		return err
	}
	seen := NewSeen()
	if err := client.ReadAll(topic, seen); err != nil {
		return err
	}
	return seen.CheckComplete()
}

func readRest(client Client, group, topic string, seen *Seen) error {
	if err := client.ReadRest(group, topic, seen); err != nil {
		return errors.Join(err, seen.Check())
	}
	return seen.CheckComplete()
}

func checkLag(client Client, group, topic string, expected int) error {
	lag, err := client.Lag(group, topic)
	if err == nil && lag != int64(expected) {
		err = fmt.Errorf("lag is %d and should be %d", lag, expected)
	}
	return err
}

func reset(client Client, group, topic string) error {
	if err := client.Reset(group, topic); err != nil {
		return err
	}
	if err := checkLag(client, group, topic, Count); err != nil {
		return err
	}
	return readRest(client, group, topic, NewSeen())
}
