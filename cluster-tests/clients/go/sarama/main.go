// The row of sarama.
package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/IBM/sarama"

	"weir.invalid/clients/table"
)

type client struct{ bootstrap []string }

func main() { table.Run(func(bootstrap string) table.Client { return client{[]string{bootstrap}} }) }

func config() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Return.Errors = false
	return config
}

func (c client) admin(step func(sarama.ClusterAdmin) error) error {
	admin, err := sarama.NewClusterAdmin(c.bootstrap, config())
	if err != nil {
		return err
	}
	defer func() { _ = admin.Close() }()
	return step(admin)
}

func (c client) Create(topic string) error {
	return c.admin(func(admin sarama.ClusterAdmin) error {
		if err := admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1}, false); err != nil {
			return err
		}
		topics, err := admin.ListTopics()
		if err == nil && topics[topic].NumPartitions != 3 {
			err = fmt.Errorf("the topic has %d partitions", topics[topic].NumPartitions)
		}
		return err
	})
}

func (c client) Produce(topic, codec string) error {
	config := config()
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	config.Producer.Return.Successes = true
	if err := config.Producer.Compression.UnmarshalText([]byte(codec)); err != nil {
		return err
	}
	producer, err := sarama.NewAsyncProducer(c.bootstrap, config)
	if err != nil {
		return err
	}
	go func() {
		for n := range table.Count {
			producer.Input() <- &sarama.ProducerMessage{
				Topic: topic, Key: sarama.StringEncoder(table.Key(n)), Value: sarama.StringEncoder(table.Value(n)),
			}
		}
	}()
	var failure error
	for range table.Count {
		select {
		case <-producer.Successes():
		case failed := <-producer.Errors():
			failure = failed
		}
	}
	return errors.Join(failure, producer.Close())
}

func (c client) ReadAll(topic string, seen *table.Seen) error {
	consumer, err := sarama.NewConsumer(c.bootstrap, config())
	if err != nil {
		return err
	}
	defer func() { _ = consumer.Close() }()
	for partition := range int32(3) {
		messages, err := consumer.ConsumePartition(topic, partition, sarama.OffsetOldest)
		if err != nil {
			return err
		}
		defer func() { _ = messages.Close() }()
		go func() {
			for message := range messages.Messages() {
				seen.Add(message.Partition, message.Offset, message.Key, message.Value)
			}
		}()
	}
	return table.WaitFor("all records", func() bool { return seen.Len() >= table.Count })
}

// A member of a group; its claims end when stop is set.
type member struct {
	group    sarama.ConsumerGroup
	seen     *table.Seen
	assigned atomic.Int64
	got      atomic.Int64
	stop     chan struct{}
	ended    chan error
}

func (c client) join(group, topic string, seen *table.Seen) (*member, error) {
	consumers, err := sarama.NewConsumerGroup(c.bootstrap, group, config())
	if err != nil {
		return nil, err
	}
	m := &member{group: consumers, seen: seen, stop: make(chan struct{}), ended: make(chan error, 1)}
	ctx, cancel := context.WithTimeout(context.Background(), 3*table.Patience)
	go func() {
		defer cancel()
		for {
			err := consumers.Consume(ctx, []string{topic}, m)
			select {
			case <-m.stop:
				m.ended <- err
				return
			default:
			}
			if err != nil || ctx.Err() != nil {
				m.ended <- errors.Join(err, ctx.Err())
				return
			}
		}
	}()
	return m, nil
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	partitions := 0
	for _, claimed := range session.Claims() {
		partitions += len(claimed)
	}
	m.assigned.Store(int64(partitions))
	return nil
}

func (m *member) Cleanup(session sarama.ConsumerGroupSession) error {
	session.Commit()
	return nil
}

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case <-m.stop:
			return nil
		case <-session.Context().Done():
			return nil
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			if m.seen.Add(message.Partition, message.Offset, message.Key, message.Value) {
				m.got.Add(1)
				session.MarkMessage(message, "")
			}
		}
	}
}

func (c client) Share(group, topic string, seen *table.Seen, produce func() error) (string, error) {
	var members [2]*member
	for index := range members {
		m, err := c.join(group, topic, seen)
		if err != nil {
			return "", err
		}
		members[index] = m
	}
	half := int64(table.GroupPartitions / 2)
	err := table.WaitFor("two partitions for each member", func() bool {
		return members[0].assigned.Load() == half && members[1].assigned.Load() == half
	})
	if err == nil {
		err = produce()
	}
	if err == nil {
		err = table.WaitFor("half of the records", func() bool {
			return seen.Len() >= table.Half && members[0].got.Load() > 0 && members[1].got.Load() > 0
		})
	}
	for _, m := range members {
		close(m.stop)
	}
	for _, m := range members {
		err = errors.Join(err, <-m.ended)
	}
	for _, m := range members {
		err = errors.Join(err, m.group.Close())
	}
	return fmt.Sprintf("[%d, %d] records by two members", members[0].got.Load(), members[1].got.Load()), err
}

func (c client) ReadRest(group, topic string, seen *table.Seen) error {
	m, err := c.join(group, topic, seen)
	if err != nil {
		return err
	}
	err = table.WaitFor("the rest", func() bool { return seen.Len() >= table.Count })
	close(m.stop)
	return errors.Join(err, <-m.ended, m.group.Close())
}

func (c client) Lag(group, topic string) (lag int64, err error) {
	err = c.admin(func(admin sarama.ClusterAdmin) error {
		partitions := []int32{0, 1, 2, 3}
		committed, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: partitions})
		if err != nil {
			return err
		}
		latest := map[int32]int64{}
		for _, partition := range partitions {
			latest[partition] = sarama.OffsetNewest
		}
		ends, err := admin.ListOffsets(map[string]map[int32]int64{topic: latest}, nil)
		if err != nil {
			return err
		}
		for _, partition := range partitions {
			lag += ends[topic][partition].Offset - committed.GetBlock(topic, partition).Offset
		}
		return nil
	})
	return lag, err
}

func (c client) Reset(group, topic string) error {
	return c.admin(func(admin sarama.ClusterAdmin) error {
		to := map[int32]sarama.OffsetAndMetadata{}
		for partition := range int32(table.GroupPartitions) {
			to[partition] = sarama.OffsetAndMetadata{Offset: 0, LeaderEpoch: -1}
		}
		answer, err := admin.AlterConsumerGroupOffsets(group, map[string]map[int32]sarama.OffsetAndMetadata{topic: to}, nil)
		if err != nil {
			return err
		}
		for _, partitions := range answer.Errors {
			for _, code := range partitions {
				if code != sarama.ErrNoError {
					return code
				}
			}
		}
		return nil
	})
}
