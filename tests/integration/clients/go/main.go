// Goes through what programs do with franz-go, a Go client that implements the protocol itself.
//
//	goclient HOST:PORT
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	runAll(os.Args[1], map[string]scenario{
		"produce_every_compression":         produceEveryCompression,
		"headers_keys_nulls_and_timestamps": headersKeysNullsAndTimestamps,
		"idempotent_producer_keeps_order":   idempotentProducerKeepsOrder,
		"acks_none_and_leader":              acksNoneAndLeader,
		"too_large_records_are_refused":     tooLargeRecordsAreRefused,
		"fetch_from_offsets_and_times":      fetchFromOffsetsAndTimes,
		"pause_and_resume":                  pauseAndResume,
		"regex_subscription":                regexSubscription,
		"commits_by_hand":                   commitsByHand,
		"commits_by_themselves":             commitsByThemselves,
		"every_balancer":                    everyBalancer,
		"static_members":                    staticMembers,
		"topics_created_by_mention":         topicsCreatedByMention,
		"admin_topics":                      adminTopics,
		"admin_configs":                     adminConfigs,
		"admin_groups_and_offsets":          adminGroupsAndOffsets,
		"admin_records_and_log_dirs":        adminRecordsAndLogDirs,
		"admin_cluster":                     adminCluster,
	})
}

// client makes connections that end with its scenario.
type client struct {
	bootstrap string
	opened    []*kgo.Client
}

func (c *client) open(options ...kgo.Opt) *kgo.Client {
	opened, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(c.bootstrap)}, options...)...)
	check(err)
	c.opened = append(c.opened, opened)
	return opened
}

func (c *client) close() {
	for _, opened := range c.opened {
		opened.Close()
	}
}

func (c *client) admin() *kadm.Client { return kadm.NewClient(c.open()) }

func (c *client) topic(ctx context.Context, name string, partitions int32) {
	_, err := c.admin().CreateTopic(ctx, partitions, 1, nil, name)
	check(err)
}

func (c *client) fill(ctx context.Context, topic string, partition int32, values ...string) {
	producer := c.open(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for _, value := range values {
		check(producer.ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: partition, Value: []byte(value)}).FirstErr())
	}
}

func numbered(count int) []string {
	values := make([]string, count)
	for number := range values {
		values[number] = fmt.Sprintf("v%d", number)
	}
	return values
}

// read polls until `count` records are there.
func read(ctx context.Context, consumer *kgo.Client, count int) []*kgo.Record {
	var records []*kgo.Record
	until(ctx, fmt.Sprintf("%d records", count), func() bool {
		if len(records) >= count {
			return true
		}
		fetches := consumer.PollFetches(ctx)
		check(fetches.Err())
		records = append(records, fetches.Records()...)
		return len(records) >= count
	})
	equal(count, len(records), "records")
	return records
}

func values(records []*kgo.Record) []string {
	found := make([]string, len(records))
	for number, record := range records {
		found[number] = string(record.Value)
	}
	return found
}

func (c *client) reader(topic string) *kgo.Client {
	return c.open(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
}

func produceEveryCompression(ctx context.Context, c *client) {
	c.topic(ctx, "go-compression", 1)
	var sent []string
	for _, codec := range []kgo.CompressionCodec{
		kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression(),
	} {
		producer := c.open(kgo.ProducerBatchCompression(codec), kgo.ProducerLinger(20*time.Millisecond))
		for number := 0; number < 200; number++ {
			value := fmt.Sprintf("%d %0100d", number, 0)
			sent = append(sent, value)
			producer.Produce(ctx, &kgo.Record{Topic: "go-compression", Key: []byte("k"), Value: []byte(value)}, nil)
		}
		check(producer.Flush(ctx))
	}
	equal(sent, values(read(ctx, c.reader("go-compression"), 1000)), "values")
}

func headersKeysNullsAndTimestamps(ctx context.Context, c *client) {
	c.topic(ctx, "go-headers", 1)
	moment := time.UnixMilli(1_600_000_000_123)
	producer := c.open()
	check(producer.ProduceSync(ctx,
		&kgo.Record{Topic: "go-headers", Value: []byte("no key"), Timestamp: moment, Headers: []kgo.RecordHeader{
			{Key: "trace", Value: []byte("a")}, {Key: "trace"}, {Key: "", Value: []byte{}},
		}},
		&kgo.Record{Topic: "go-headers", Key: []byte("tombstone")},
	).FirstErr())
	records := read(ctx, c.reader("go-headers"), 2)
	equal(3, len(records[0].Headers), "headers")
	equal("a", string(records[0].Headers[0].Value), "header")
	equal(true, records[0].Headers[1].Value == nil, "null header")
	equal(true, records[0].Key == nil, "null key")
	equal(moment.UnixMilli(), records[0].Timestamp.UnixMilli(), "timestamp")
	equal(int8(0), records[0].Attrs.TimestampType(), "timestamp type")
	equal(true, records[1].Value == nil, "tombstone")
}

func idempotentProducerKeepsOrder(ctx context.Context, c *client) {
	c.topic(ctx, "go-idempotent", 1)
	producer := c.open(kgo.ProducerBatchMaxBytes(1000), kgo.MaxBufferedRecords(100))
	var lock sync.Mutex
	var offsets []int64
	for _, value := range numbered(2000) {
		producer.Produce(ctx, &kgo.Record{Topic: "go-idempotent", Value: []byte(value)}, func(record *kgo.Record, err error) {
			check(err)
			lock.Lock()
			defer lock.Unlock()
			offsets = append(offsets, record.Offset)
		})
	}
	check(producer.Flush(ctx))
	equal(true, sort.SliceIsSorted(offsets, func(a, b int) bool { return offsets[a] < offsets[b] }), "offsets rise")
	equal(numbered(2000), values(read(ctx, c.reader("go-idempotent"), 2000)), "values")
}

func acksNoneAndLeader(ctx context.Context, c *client) {
	c.topic(ctx, "go-acks", 1)
	for _, acks := range []kgo.Acks{kgo.NoAck(), kgo.LeaderAck()} {
		producer := c.open(kgo.RequiredAcks(acks), kgo.DisableIdempotentWrite())
		check(producer.ProduceSync(ctx, kgo.StringRecord("v"), &kgo.Record{Topic: "go-acks", Value: []byte("v")})[1:].FirstErr())
	}
	equal([]string{"v", "v"}, values(read(ctx, c.reader("go-acks"), 2)), "values")
}

func tooLargeRecordsAreRefused(ctx context.Context, c *client) {
	c.topic(ctx, "go-too-large", 1)
	producer := c.open(kgo.ProducerBatchMaxBytes(10_000_000), kgo.ProducerBatchCompression(kgo.NoCompression()))
	err := producer.ProduceSync(ctx, &kgo.Record{Topic: "go-too-large", Value: make([]byte, 2_000_000)}).FirstErr()
	fails(err, kerr.MessageTooLarge, "a large record")
	check(producer.ProduceSync(ctx, &kgo.Record{Topic: "go-too-large", Value: []byte("small")}).FirstErr())
}

func fetchFromOffsetsAndTimes(ctx context.Context, c *client) {
	c.topic(ctx, "go-times", 1)
	producer := c.open(kgo.ProducerLinger(50 * time.Millisecond))
	for number := int64(0); number < 100; number++ {
		producer.Produce(ctx, &kgo.Record{Topic: "go-times", Timestamp: time.UnixMilli(1_600_000_000_000 + number*10)}, nil)
	}
	check(producer.Flush(ctx))
	for offset, from := range map[int64]kgo.Offset{
		90: kgo.NewOffset().At(90),
		97: kgo.NewOffset().AtEnd().Relative(-3),
		34: kgo.NewOffset().AfterMilli(1_600_000_000_335),
	} {
		consumer := c.open(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"go-times": {0: from}}))
		fetches := consumer.PollFetches(ctx)
		check(fetches.Err())
		equal(offset, fetches.Records()[0].Offset, "first offset")
		consumer.SetOffsets(map[string]map[int32]kgo.EpochOffset{"go-times": {0: {Epoch: -1, Offset: 5}}})
		equal(int64(5), consumer.PollFetches(ctx).Records()[0].Offset, "after SetOffsets")
	}
}

func pauseAndResume(ctx context.Context, c *client) {
	c.topic(ctx, "go-pause", 2)
	consumer := c.reader("go-pause")
	consumer.PauseFetchPartitions(map[string][]int32{"go-pause": {1}})
	c.fill(ctx, "go-pause", 0, numbered(3)...)
	c.fill(ctx, "go-pause", 1, numbered(4)...)
	for _, record := range read(ctx, consumer, 3) {
		equal(int32(0), record.Partition, "partition that is not paused")
	}
	consumer.ResumeFetchPartitions(map[string][]int32{"go-pause": {1}})
	equal(int32(1), read(ctx, consumer, 4)[0].Partition, "partition that was resumed")
}

func regexSubscription(ctx context.Context, c *client) {
	c.topic(ctx, "go-regex-a", 1)
	c.topic(ctx, "go-noregex", 1)
	c.fill(ctx, "go-regex-a", 0, "a")
	c.fill(ctx, "go-noregex", 0, "no")
	consumer := c.open(kgo.ConsumeRegex(), kgo.ConsumeTopics("^go-regex-.*"), kgo.ConsumerGroup("go-regex"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.MetadataMaxAge(time.Second), kgo.MetadataMinAge(200*time.Millisecond))
	equal([]string{"a"}, values(read(ctx, consumer, 1)), "values")
	c.topic(ctx, "go-regex-b", 1)
	c.fill(ctx, "go-regex-b", 0, "b")
	equal([]string{"b"}, values(read(ctx, consumer, 1)), "values of a topic that came later")
}

func (c *client) member(group, topic string, options ...kgo.Opt) *kgo.Client {
	return c.open(append([]kgo.Opt{
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.HeartbeatInterval(300 * time.Millisecond),
	}, options...)...)
}

func (c *client) committed(ctx context.Context, group, topic string) int64 {
	offsets, err := c.admin().FetchOffsets(ctx, group)
	check(err)
	offset, exists := offsets.Lookup(topic, 0)
	if !exists {
		return -1
	}
	return offset.At
}

func commitsByHand(ctx context.Context, c *client) {
	c.topic(ctx, "go-commits", 1)
	c.fill(ctx, "go-commits", 0, numbered(10)...)
	member := c.member("go-commits", "go-commits", kgo.DisableAutoCommit())
	records := read(ctx, member, 10)
	equal(int64(-1), c.committed(ctx, "go-commits", "go-commits"), "before a commit")
	check(member.CommitRecords(ctx, records[3]))
	equal(int64(4), c.committed(ctx, "go-commits", "go-commits"), "after CommitRecords")
	check(member.CommitUncommittedOffsets(ctx))
	equal(int64(10), c.committed(ctx, "go-commits", "go-commits"), "after all")
	member.Close()
	c.fill(ctx, "go-commits", 0, "new")
	equal([]string{"new"}, values(read(ctx, c.member("go-commits", "go-commits"), 1)), "where the next one goes on")
}

func commitsByThemselves(ctx context.Context, c *client) {
	c.topic(ctx, "go-auto", 1)
	c.fill(ctx, "go-auto", 0, numbered(10)...)
	member := c.member("go-auto", "go-auto", kgo.AutoCommitInterval(100*time.Millisecond))
	read(ctx, member, 10)
	c.fill(ctx, "go-auto", 0, "more")
	read(ctx, member, 1)
	until(ctx, "a commit", func() bool {
		time.Sleep(50 * time.Millisecond)
		return c.committed(ctx, "go-auto", "go-auto") >= 10
	})
}

func (c *client) described(ctx context.Context, group string) kadm.DescribedGroup {
	groups, err := c.admin().DescribeGroups(ctx, group)
	check(err)
	return groups[group]
}

// settled waits for a stable group of `members` which share all `partitions`.
func (c *client) settled(ctx context.Context, group string, members, partitions int) kadm.DescribedGroup {
	var found kadm.DescribedGroup
	until(ctx, fmt.Sprintf("%s with %d members", group, members), func() bool {
		time.Sleep(50 * time.Millisecond)
		found = c.described(ctx, group)
		assigned := 0
		found.AssignedPartitions().Each(func(string, int32) { assigned++ })
		return found.State == "Stable" && len(found.Members) == members && assigned == partitions
	})
	return found
}

func everyBalancer(ctx context.Context, c *client) {
	for name, balancer := range map[string]kgo.GroupBalancer{
		"range": kgo.RangeBalancer(), "roundrobin": kgo.RoundRobinBalancer(), "sticky": kgo.StickyBalancer(),
		"cooperative-sticky": kgo.CooperativeStickyBalancer(),
	} {
		topic := "go-balance-" + name
		c.topic(ctx, topic, 6)
		c.member(topic, topic, kgo.Balancers(balancer))
		c.settled(ctx, topic, 1, 6)
		second := c.member(topic, topic, kgo.Balancers(balancer))
		group := c.settled(ctx, topic, 2, 6)
		equal(name, group.Protocol, "protocol")
		second.Close()
		c.settled(ctx, topic, 1, 6)
	}
}

func staticMembers(ctx context.Context, c *client) {
	c.topic(ctx, "go-static", 2)
	member := c.member("go-static", "go-static", kgo.InstanceID("steady"))
	before := c.settled(ctx, "go-static", 1, 2).Members[0]
	equal("steady", *before.InstanceID, "instance")
	member.Close() // It stays a member, until its session ends.
	equal(1, len(c.described(ctx, "go-static").Members), "members after it went")
	c.member("go-static", "go-static", kgo.InstanceID("steady"))
	until(ctx, "its successor", func() bool {
		time.Sleep(50 * time.Millisecond)
		now := c.described(ctx, "go-static").Members
		return len(now) == 1 && now[0].MemberID != before.MemberID
	})
}

func topicsCreatedByMention(ctx context.Context, c *client) {
	producer := c.open(kgo.AllowAutoTopicCreation())
	check(producer.ProduceSync(ctx, &kgo.Record{Topic: "go-mentioned", Value: []byte("v")}).FirstErr())
	strict := c.open(kgo.UnknownTopicRetries(1))
	err := strict.ProduceSync(ctx, &kgo.Record{Topic: "go-not-mentioned", Value: []byte("v")}).FirstErr()
	fails(err, kerr.UnknownTopicOrPartition, "without auto-creation")
}
