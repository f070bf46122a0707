// The row of kafka-go.
package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"

	"weir.invalid/clients/table"
)

type client struct{ bootstrap string }

func main() { table.Run(func(bootstrap string) table.Client { return client{bootstrap} }) }

func patience() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), table.Patience)
}

func (c client) admin() *kafka.Client {
	return &kafka.Client{Addr: kafka.TCP(c.bootstrap), Timeout: table.Patience}
}

func (c client) Create(topic string) error {
	ctx, cancel := patience()
	defer cancel()
	config := kafka.TopicConfig{Topic: topic, NumPartitions: 3, ReplicationFactor: 1}
	created, err := c.admin().CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{config}})
	if err != nil {
		return err
	}
	if err := created.Errors[topic]; err != nil {
		return err
	}
	described, err := c.admin().Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	if err == nil && len(described.Topics[0].Partitions) != 3 {
		err = fmt.Errorf("the topic has %d partitions", len(described.Topics[0].Partitions))
	}
	return err
}

func (c client) Produce(topic, codec string) error {
	codecs := map[string]kafka.Compression{
		"none": 0, "gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
	}
	writer := &kafka.Writer{
		Addr: kafka.TCP(c.bootstrap), Topic: topic, Balancer: &kafka.Hash{}, RequiredAcks: kafka.RequireAll,
		Compression: codecs[codec], BatchSize: 500, BatchTimeout: 10 * time.Millisecond,
	}
	messages := make([]kafka.Message, table.Count)
	for n := range messages {
		messages[n] = kafka.Message{Key: []byte(table.Key(n)), Value: []byte(table.Value(n))}
	}
	ctx, cancel := patience()
	defer cancel()
	return errors.Join(writer.WriteMessages(ctx, messages...), writer.Close())
}

func (c client) reader(config kafka.ReaderConfig) *kafka.Reader {
	config.Brokers = []string{c.bootstrap}
	config.StartOffset = kafka.FirstOffset
	config.MaxWait = 200 * time.Millisecond
	return kafka.NewReader(config)
}

func (c client) ReadAll(topic string, seen *table.Seen) error {
	ctx, cancel := patience()
	defer cancel()
	var all sync.WaitGroup
	for partition := range 3 {
		all.Go(func() {
			reader := c.reader(kafka.ReaderConfig{Topic: topic, Partition: partition})
			defer func() { _ = reader.Close() }()
			for {
				message, err := reader.ReadMessage(ctx)
				if err != nil {
					return
				}
				seen.Add(int32(message.Partition), message.Offset, message.Key, message.Value)
			}
		})
	}
	err := table.WaitFor("all records", func() bool { return seen.Len() >= table.Count })
	cancel()
	all.Wait()
	return err
}

type member struct {
	reader *kafka.Reader
	got    atomic.Int64
	last   map[int]kafka.Message
	stop   context.CancelFunc
	ended  chan error
}

func (c client) join(group, topic string, seen *table.Seen) *member {
	ctx, stop := context.WithCancel(context.Background())
	m := &member{
		reader: c.reader(kafka.ReaderConfig{GroupID: group, Topic: topic}),
		last:   map[int]kafka.Message{}, stop: stop, ended: make(chan error, 1),
	}
	go func() {
		for {
			message, err := m.reader.FetchMessage(ctx)
			if errors.Is(err, context.Canceled) {
				m.ended <- nil
				return
			}
			if err != nil {
				m.ended <- err
				return
			}
			if seen.Add(int32(message.Partition), message.Offset, message.Key, message.Value) {
				m.last[message.Partition] = message
				m.got.Add(1)
			}
		}
	}()
	return m
}

// Stops reading and commits what was processed; the member stays in the group until it is closed.
func (m *member) commit() error {
	m.stop()
	err := <-m.ended
	ctx, cancel := patience()
	defer cancel()
	for _, message := range m.last {
		err = errors.Join(err, m.reader.CommitMessages(ctx, message))
	}
	return err
}

// Whether two members have two partitions each, as the coordinator tells.
func (c client) shared(group string) bool {
	ctx, cancel := patience()
	defer cancel()
	described, err := c.admin().DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{group}})
	if err != nil || len(described.Groups) != 1 || described.Groups[0].GroupState != "Stable" {
		return false
	}
	members := described.Groups[0].Members
	for _, one := range members {
		partitions := 0
		for _, topic := range one.MemberAssignments.Topics {
			partitions += len(topic.Partitions)
		}
		if partitions != table.GroupPartitions/2 {
			return false
		}
	}
	return len(members) == 2
}

func (c client) Share(group, topic string, seen *table.Seen, produce func() error) (string, error) {
	members := [2]*member{c.join(group, topic, seen), c.join(group, topic, seen)}
	err := table.WaitFor("two partitions for each member", func() bool { return c.shared(group) })
	if err == nil {
		err = produce()
	}
	if err == nil {
		err = table.WaitFor("half of the records", func() bool {
			return seen.Len() >= table.Half && members[0].got.Load() > 0 && members[1].got.Load() > 0
		})
	}
	for _, m := range members {
		m.stop()
	}
	for _, m := range members {
		err = errors.Join(err, m.commit())
	}
	for _, m := range members {
		err = errors.Join(err, m.reader.Close())
	}
	return fmt.Sprintf("[%d, %d] records by two members", members[0].got.Load(), members[1].got.Load()), err
}

func (c client) ReadRest(group, topic string, seen *table.Seen) error {
	m := c.join(group, topic, seen)
	err := table.WaitFor("the rest", func() bool { return seen.Len() >= table.Count })
	return errors.Join(err, m.commit(), m.reader.Close())
}

func (c client) Lag(group, topic string) (int64, error) {
	ctx, cancel := patience()
	defer cancel()
	partitions := map[string][]int{topic: {0, 1, 2, 3}}
	committed, err := c.admin().OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: group, Topics: partitions})
	if err != nil {
		return 0, err
	}
	latest := []kafka.OffsetRequest{}
	for partition := range table.GroupPartitions {
		latest = append(latest, kafka.LastOffsetOf(partition))
	}
	ends, err := c.admin().ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: latest}})
	if err != nil {
		return 0, err
	}
	var lag int64
	for _, end := range ends.Topics[topic] {
		lag += end.LastOffset
	}
	for _, partition := range committed.Topics[topic] {
		lag -= partition.CommittedOffset
		err = errors.Join(err, partition.Error)
	}
	return lag, errors.Join(err, committed.Error)
}

func (c client) Reset(group, topic string) error {
	ctx, cancel := patience()
	defer cancel()
	commits := []kafka.OffsetCommit{}
	for partition := range table.GroupPartitions {
		commits = append(commits, kafka.OffsetCommit{Partition: partition, Offset: 0})
	}
	answer, err := c.admin().OffsetCommit(ctx, &kafka.OffsetCommitRequest{
		GroupID: group, GenerationID: -1, Topics: map[string][]kafka.OffsetCommit{topic: commits},
	})
	if err != nil {
		return err
	}
	for _, partition := range answer.Topics[topic] {
		err = errors.Join(err, partition.Error)
	}
	return err
}
