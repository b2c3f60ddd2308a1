"""Which settings Barnabas acts on, by who reads them; all others are checked, kept and shown, and change nothing.

A unit test looks for each of these names in the service that is said to read it.
"""

from __future__ import annotations

from typing import Final

TOPIC: Final = frozenset(
    (
        "cleanup.policy",
        "delete.retention.ms",
        "flush.messages",
        "flush.ms",
        "follower.replication.throttled.replicas",
        "index.interval.bytes",
        "leader.replication.throttled.replicas",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.type",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "unclean.leader.election.enable",
    )
)
"""What the log of a partition and the elections of its leaders obey; the broker settings that topics fall back to have
the effect of these.
"""

ELECTIONS: Final = frozenset(("unclean.leader.election.enable",))
"""Of these, what the controller obeys."""

STORAGE: Final = frozenset(
    (
        "add.partitions.to.txn.retry.backoff.max.ms",
        "add.partitions.to.txn.retry.backoff.ms",
        "alter.log.dirs.replication.quota.window.num",
        "alter.log.dirs.replication.quota.window.size.seconds",
        "broker.rack",
        "cordoned.log.dirs",
        "fetch.max.bytes",
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.enable",
        "log.cleaner.io.max.bytes.per.second",
        "log.dirs",
        "log.flush.offset.checkpoint.interval.ms",
        "log.retention.check.interval.ms",
        "node.id",
        "num.recovery.threads.per.data.dir",
        "producer.id.expiration.check.interval.ms",
        "producer.id.expiration.ms",
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "replica.fetch.backoff.ms",
        "replica.fetch.max.bytes",
        "replica.fetch.response.max.bytes",
        "replica.high.watermark.checkpoint.interval.ms",
        "replica.lag.time.max.ms",
        "replica.selector.class",
        "replication.quota.window.num",
        "replication.quota.window.size.seconds",
        "transaction.max.timeout.ms",
        "transaction.partition.verification.enable",
    )
)

CONTROLLER: Final = frozenset(
    (
        "auto.leader.rebalance.enable",
        "broker.session.timeout.ms",
        "cordoned.log.dirs",
        "default.replication.factor",
        "delete.topic.enable",
        "leader.imbalance.check.interval.seconds",
        "num.partitions",
        "offsets.topic.num.partitions",
        "offsets.topic.replication.factor",
        "offsets.topic.segment.bytes",
        "transaction.state.log.min.isr",
        "transaction.state.log.num.partitions",
        "transaction.state.log.replication.factor",
        "transaction.state.log.segment.bytes",
        "unclean.leader.election.interval.ms",
    )
)

GATEWAY: Final = frozenset(
    (
        "advertised.listeners",
        "auto.create.topics.enable",
        "broker.rack",
        "connections.max.idle.ms",
        "fetch.max.bytes",
        "listeners",
        "max.connections",
        "max.incremental.fetch.session.cache.slots",
        "max.request.partition.size.limit",
        "queued.max.request.bytes",
        "socket.request.max.bytes",
        "telemetry.max.bytes",
    )
)

COORDINATOR: Final = frozenset(
    (
        "group.consumer.assignment.interval.ms",
        "group.consumer.assignors",
        "group.consumer.heartbeat.interval.ms",
        "group.consumer.max.assignment.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
        "group.consumer.max.session.timeout.ms",
        "group.consumer.max.size",
        "group.consumer.migration.policy",
        "group.consumer.min.assignment.interval.ms",
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.min.session.timeout.ms",
        "group.consumer.regex.refresh.interval.ms",
        "group.consumer.session.timeout.ms",
        "group.coordinator.rebalance.protocols",
        "group.initial.rebalance.delay.ms",
        "group.max.session.timeout.ms",
        "group.max.size",
        "group.min.session.timeout.ms",
        "offset.metadata.max.bytes",
        "offsets.commit.timeout.ms",
        "offsets.load.buffer.size",
        "offsets.retention.check.interval.ms",
        "offsets.retention.minutes",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        "transaction.max.timeout.ms",
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        "transaction.state.log.load.buffer.size",
        "transaction.two.phase.commit.enable",
        "transactional.id.expiration.ms",
    )
)

GROUP: Final = frozenset(
    (
        "consumer.assignment.interval.ms",
        "consumer.heartbeat.interval.ms",
        "consumer.session.timeout.ms",
    )
)
"""Of a group's own settings, what the coordinator obeys."""

BROKER: Final = STORAGE | CONTROLLER | GATEWAY | COORDINATOR
