// The row of franz-go.
package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir.invalid/clients/table"
)

type franz struct{ bootstrap string }

func main() { table.Run(func(bootstrap string) table.Client { return franz{bootstrap} }) }

func patience() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), table.Patience)
}

func (f franz) open(more ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(f.bootstrap)}, more...)...)
}

func (f franz) admin(step func(context.Context, *kadm.Client) error) error {
	client, err := f.open()
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := patience()
	defer cancel()
	return step(ctx, kadm.NewClient(client))
}

func (f franz) Create(topic string) error {
	return f.admin(func(ctx context.Context, admin *kadm.Client) error {
		if _, err := admin.CreateTopic(ctx, 3, 1, nil, topic); err != nil {
			return err
		}
		// The answer may come before every broker knows the topic, as in Kafka.
		return table.WaitFor("the topic's three partitions", func() bool {
			topics, err := admin.ListTopics(ctx, topic)
			return err == nil && len(topics[topic].Partitions) == 3
		})
	})
}

func (f franz) Produce(topic, codec string) error {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	client, err := f.open(kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(codecs[codec]))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := patience()
	defer cancel()
	var failure atomic.Pointer[error]
	for n := range table.Count {
		record := &kgo.Record{Key: []byte(table.Key(n)), Value: []byte(table.Value(n))}
		client.Produce(ctx, record, func(_ *kgo.Record, err error) {
			if err != nil {
				failure.CompareAndSwap(nil, &err)
			}
		})
	}
	if err := client.Flush(ctx); err != nil {
		return err
	}
	if err := failure.Load(); err != nil {
		return *err
	}
	return nil
}

func (f franz) ReadAll(topic string, seen *table.Seen) error {
	client, err := f.open(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer client.Close()
	return readUntil(client, seen, func() bool { return seen.Len() >= table.Count }, nil)
}

// Reads until done says so or the patience is over.
func readUntil(client *kgo.Client, seen *table.Seen, done func() bool, got *atomic.Int64) error {
	ctx, cancel := patience()
	defer cancel()
	go func() {
		_ = table.WaitFor("the end", func() bool { return done() || ctx.Err() != nil })
		cancel()
	}()
	for !done() {
		fetches := client.PollFetches(ctx)
		for _, failed := range fetches.Errors() {
			if !errors.Is(failed.Err, context.Canceled) {
				return failed.Err
			}
		}
		fetches.EachRecord(func(record *kgo.Record) {
			if seen.Add(record.Partition, record.Offset, record.Key, record.Value) && got != nil {
				got.Add(1)
			}
		})
	}
	return nil
}

type member struct {
	client   *kgo.Client
	lock     sync.Mutex
	assigned map[int32]bool
	got      atomic.Int64
}

func (f franz) member(group, topic string) (*member, error) {
	m := &member{assigned: map[int32]bool{}}
	change := func(owns bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			m.lock.Lock()
			defer m.lock.Unlock()
			for _, partition := range partitions[topic] {
				if owns {
					m.assigned[partition] = true
				} else {
					delete(m.assigned, partition)
				}
			}
		}
	}
	client, err := f.open(
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(change(true)), kgo.OnPartitionsRevoked(change(false)), kgo.OnPartitionsLost(change(false)),
	)
	m.client = client
	return m, err
}

func (m *member) partitions() int {
	m.lock.Lock()
	defer m.lock.Unlock()
	return len(m.assigned)
}

func (m *member) commit(topic string, seen *table.Seen) error {
	m.lock.Lock()
	offsets := map[int32]kgo.EpochOffset{}
	for partition, position := range seen.Positions() {
		if m.assigned[partition] {
			offsets[partition] = kgo.EpochOffset{Epoch: -1, Offset: position}
		}
	}
	m.lock.Unlock()
	ctx, cancel := patience()
	defer cancel()
	var failure error
	told := func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse, err error) {
		failure = err
		if answer != nil {
			for _, partition := range answer.Topics[0].Partitions {
				failure = errors.Join(failure, kerr.ErrorForCode(partition.ErrorCode))
			}
		}
	}
	m.client.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{topic: offsets}, told)
	return failure
}

func (f franz) Share(group, topic string, seen *table.Seen, produce func() error) (string, error) {
	var members [2]*member
	for index := range members {
		m, err := f.member(group, topic)
		if err != nil {
			return "", err
		}
		defer m.client.Close()
		members[index] = m
	}
	var stop atomic.Bool
	ended := make(chan error, len(members))
	for _, m := range members {
		go func() { ended <- readUntil(m.client, seen, stop.Load, &m.got) }()
	}
	half := table.GroupPartitions / 2
	err := table.WaitFor("two partitions for each member", func() bool {
		return members[0].partitions() == half && members[1].partitions() == half
	})
	if err == nil {
		err = produce()
	}
	if err == nil {
		err = table.WaitFor("half of the records", func() bool {
			return seen.Len() >= table.Half && members[0].got.Load() > 0 && members[1].got.Load() > 0
		})
	}
	stop.Store(true)
	for range members {
		err = errors.Join(err, <-ended)
	}
	for _, m := range members {
		err = errors.Join(err, m.commit(topic, seen))
	}
	return fmt.Sprintf("[%d, %d] records by two members", members[0].got.Load(), members[1].got.Load()), err
}

func (f franz) ReadRest(group, topic string, seen *table.Seen) error {
	m, err := f.member(group, topic)
	if err != nil {
		return err
	}
	defer m.client.Close()
	if err := readUntil(m.client, seen, func() bool { return seen.Len() >= table.Count }, nil); err != nil {
		return err
	}
	return m.commit(topic, seen)
}

func (f franz) Lag(group, topic string) (lag int64, err error) {
	err = f.admin(func(ctx context.Context, admin *kadm.Client) error {
		lags, err := admin.Lag(ctx, group)
		if err == nil {
			err = lags.Error()
		}
		if err == nil {
			lag = lags[group].Lag.Total()
		}
		return err
	})
	return lag, err
}

func (f franz) Reset(group, topic string) error {
	return f.admin(func(ctx context.Context, admin *kadm.Client) error {
		offsets := kadm.Offsets{}
		for partition := range int32(table.GroupPartitions) {
			offsets.AddOffset(topic, partition, 0, -1)
		}
		return admin.CommitAllOffsets(ctx, group, offsets)
	})
}
