package main

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func text(value string) *string { return &value }

func adminTopics(ctx context.Context, c *client) {
	admin := c.admin()
	created, err := admin.CreateTopic(ctx, 2, -1, map[string]*string{"retention.ms": text("60000")}, "go-admin")
	check(err)
	equal(int32(2), created.NumPartitions, "partitions")
	equal("60000", *created.Configs["retention.ms"].Value, "answered config")
	_, err = admin.CreateTopic(ctx, 1, 1, nil, "go-admin")
	fails(err, kerr.TopicAlreadyExists, "twice")
	_, err = admin.CreateTopic(ctx, 1, 3, nil, "go-admin-b")
	fails(err, kerr.InvalidReplicationFactor, "three replicas")
	added, err := admin.CreatePartitions(ctx, 3, "go-admin")
	check(err)
	check(added["go-admin"].Err)
	topics, err := admin.ListTopics(ctx, "go-admin")
	check(err)
	equal(created.ID, topics["go-admin"].ID, "topic id")
	equal(5, len(topics["go-admin"].Partitions), "partitions")
	for _, partition := range topics["go-admin"].Partitions {
		equal(int32(1), partition.Leader, "leader")
		equal([]int32{1}, partition.Replicas, "replicas")
		equal([]int32{1}, partition.ISR, "in-sync replicas")
	}
	deleted, err := admin.DeleteTopics(ctx, "go-admin", "go-never-was")
	check(err)
	check(deleted["go-admin"].Err)
	fails(deleted["go-never-was"].Err, kerr.UnknownTopicOrPartition, "an unknown topic")
}

func adminConfigs(ctx context.Context, c *client) {
	admin := c.admin()
	c.topic(ctx, "go-configs", 1)
	altered, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{
		{Op: kadm.SetConfig, Name: "max.message.bytes", Value: text("2000000")},
		{Op: kadm.AppendConfig, Name: "cleanup.policy", Value: text("compact")},
	}, "go-configs")
	check(err)
	check(altered[0].Err)
	described, err := admin.DescribeTopicConfigs(ctx, "go-configs")
	check(err)
	found := map[string]kadm.Config{}
	for _, config := range described[0].Configs {
		found[config.Key] = config
	}
	equal("2000000", *found["max.message.bytes"].Value, "a config that was set")
	equal("DYNAMIC_TOPIC_CONFIG", found["max.message.bytes"].Source.String(), "its source")
	equal("delete,compact", *found["cleanup.policy"].Value, "appended")
	equal("DEFAULT_CONFIG", found["segment.bytes"].Source.String(), "the source of a default")
	altered, err = admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "no.such", Value: text("1")}}, "go-configs")
	check(err)
	fails(altered[0].Err, kerr.InvalidConfig, "an unknown config")
	brokers, err := admin.DescribeBrokerConfigs(ctx, 1)
	check(err)
	equal(true, len(brokers[0].Configs) > 100, "the broker's configs")
}

func adminGroupsAndOffsets(ctx context.Context, c *client) {
	admin := c.admin()
	c.topic(ctx, "go-groups", 1)
	c.fill(ctx, "go-groups", 0, numbered(5)...)
	var offsets kadm.Offsets
	offsets.AddOffset("go-groups", 0, 3, -1)
	committed, err := admin.CommitOffsets(ctx, "go-groups", offsets)
	check(err)
	check(committed.Error())
	lags, err := admin.Lag(ctx, "go-groups")
	check(err)
	equal(int64(2), lags["go-groups"].Lag.Total(), "lag")
	listed, err := admin.ListGroups(ctx)
	check(err)
	equal("Empty", listed["go-groups"].State, "state")
	member := c.member("go-groups", "go-groups")
	read(ctx, member, 2)
	refused, err := admin.DeleteGroups(ctx, "go-groups", "go-no-group")
	check(err)
	fails(refused["go-groups"].Err, kerr.NonEmptyGroup, "a group with a member")
	fails(refused["go-no-group"].Err, kerr.GroupIDNotFound, "an unknown group")
	member.Close()
	until(ctx, "the group to be deleted", func() bool {
		time.Sleep(20 * time.Millisecond)
		deleted, err := admin.DeleteGroups(ctx, "go-groups")
		return err == nil && deleted["go-groups"].Err == nil
	})
}

func adminRecordsAndLogDirs(ctx context.Context, c *client) {
	admin := c.admin()
	c.topic(ctx, "go-records", 1)
	c.fill(ctx, "go-records", 0, numbered(5)...)
	var before kadm.Offsets
	before.AddOffset("go-records", 0, 2, -1)
	deleted, err := admin.DeleteRecords(ctx, before)
	check(err)
	check(deleted.Error())
	first, err := admin.ListStartOffsets(ctx, "go-records")
	check(err)
	offset, _ := first.Lookup("go-records", 0)
	equal(int64(2), offset.Offset, "start")
	last, err := admin.ListCommittedOffsets(ctx, "go-records")
	check(err)
	offset, _ = last.Lookup("go-records", 0)
	equal(int64(5), offset.Offset, "last stable offset")
	dirs, err := admin.DescribeAllLogDirs(ctx, nil)
	check(err)
	check(dirs[1].Error())
	found := false
	dirs[1].EachPartition(func(partition kadm.DescribedLogDirPartition) {
		found = found || partition.Topic == "go-records" && partition.Size > 0
	})
	equal(true, found, "the partition in a log directory")
	producers, err := admin.DescribeProducers(ctx, topicSet("go-records"))
	check(err)
	equal(true, len(producers.SortedProducers()) > 0, "producers")
}

func topicSet(name string) kadm.TopicsSet {
	set := kadm.TopicsSet{}
	set.Add(name, 0)
	return set
}

func adminCluster(ctx context.Context, c *client) {
	admin := c.admin()
	metadata, err := admin.BrokerMetadata(ctx)
	check(err)
	equal(22, len(metadata.Cluster), "cluster id")
	equal([]int32{1}, metadata.Brokers.NodeIDs(), "brokers")
	equal(int32(1), metadata.Controller, "controller")
	versions, err := admin.ApiVersions(ctx)
	check(err)
	for _, version := range versions {
		check(version.Err)
		equal(true, version.VersionGuess() != "", "version guess")
	}
}
