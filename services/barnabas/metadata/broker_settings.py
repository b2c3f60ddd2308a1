"""The settings of brokers, with Kafka's defaults and whether they can change while a broker runs.

Source: the broker configuration reference of Apache Kafka 4. Settings of logs are in `broker_log_settings`. The
list covers what topics fall back to and what Barnabas acts on or clients look for; it is not all of Kafka's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.metadata.broker_log_settings import BROKER_LOG_SETTINGS
from barnabas.metadata.config_def import (
    INT_MAX,
    Between,
    ConfigDef,
    ConfigType,
    ConfigValue,
    EachOf,
    OneOf,
    UpdateMode,
    Validator,
    table_of,
)

_B, _S, _I, _SHORT, _L, _LIST, _P = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.SHORT,
    ConfigType.LONG,
    ConfigType.LIST,
    ConfigType.PASSWORD,
)
_PER_BROKER, _CLUSTER = UpdateMode.PER_BROKER, UpdateMode.CLUSTER_WIDE
_NOT_NEGATIVE, _POSITIVE = Between(0), Between(1)
_INT_MAX_TEXT: Final = str(INT_MAX)

_Row = tuple[str, ConfigType, str | None, Validator | None, UpdateMode, str]
_FIXED: Final = UpdateMode.READ_ONLY

_TOPICS: Final[tuple[_Row, ...]] = (
    ("num.partitions", _I, "1", _POSITIVE, _FIXED, "Partitions of a topic that is created without a number."),
    (
        "default.replication.factor",
        _I,
        "1",
        None,
        _FIXED,
        "Replicas of a topic that is created without a number.",
    ),
    ("auto.create.topics.enable", _B, "true", None, _FIXED, "Whether asking for a topic creates it."),
    ("delete.topic.enable", _B, "true", None, _FIXED, "Whether topics can be deleted."),
    ("broker.id", _I, "-1", None, _FIXED, "The id of the broker, an older name of node.id."),
    ("node.id", _I, None, _NOT_NEGATIVE, _FIXED, "The id of the node."),
    ("broker.rack", _S, None, None, _FIXED, "The rack or zone of the broker, for placing replicas apart."),
)

_NETWORK: Final[tuple[_Row, ...]] = (
    ("listeners", _S, "PLAINTEXT://:9092", None, _PER_BROKER, "Addresses on which clients are served."),
    ("advertised.listeners", _S, None, None, _PER_BROKER, "Addresses that clients are told of."),
    (
        "listener.security.protocol.map",
        _S,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        None,
        _PER_BROKER,
        "The security protocol of each listener.",
    ),
    (
        "socket.send.buffer.bytes",
        _I,
        "102400",
        None,
        _FIXED,
        "SO_SNDBUF of client sockets; -1 for the system's.",
    ),
    (
        "socket.receive.buffer.bytes",
        _I,
        "102400",
        None,
        _FIXED,
        "SO_RCVBUF of client sockets; -1 for the system's.",
    ),
    ("socket.request.max.bytes", _I, "104857600", _POSITIVE, _FIXED, "Largest request in bytes."),
    ("socket.listen.backlog.size", _I, "50", _POSITIVE, _FIXED, "Connections that may wait to be accepted."),
    ("max.connections", _I, _INT_MAX_TEXT, _NOT_NEGATIVE, _CLUSTER, "Client connections in all."),
    ("max.connections.per.ip", _I, _INT_MAX_TEXT, _NOT_NEGATIVE, _CLUSTER, "Client connections per address."),
    ("max.connections.per.ip.overrides", _S, "", None, _CLUSTER, "Addresses with a limit of their own."),
    ("max.connection.creation.rate", _I, _INT_MAX_TEXT, _NOT_NEGATIVE, _CLUSTER, "New connections a second."),
    (
        "connections.max.idle.ms",
        _L,
        "600000",
        None,
        _FIXED,
        "Milliseconds after which an idle connection is closed.",
    ),
    (
        "connection.failed.authentication.delay.ms",
        _I,
        "100",
        _NOT_NEGATIVE,
        _FIXED,
        "Milliseconds by which the answer to a failed authentication is delayed.",
    ),
    (
        "queued.max.requests",
        _I,
        "500",
        _POSITIVE,
        _FIXED,
        "Requests that may wait before sockets are not read.",
    ),
    ("queued.max.request.bytes", _L, "-1", None, _FIXED, "Bytes that may wait before sockets are not read."),
    (
        "num.network.threads",
        _I,
        "3",
        _POSITIVE,
        _CLUSTER,
        "Threads per listener that read and write sockets.",
    ),
    ("num.io.threads", _I, "8", _POSITIVE, _CLUSTER, "Threads that process requests."),
    ("background.threads", _I, "10", _POSITIVE, _CLUSTER, "Threads for background work."),
    (
        "request.timeout.ms",
        _I,
        "30000",
        _NOT_NEGATIVE,
        _FIXED,
        "Milliseconds that a broker waits for another.",
    ),
    ("fetch.max.bytes", _I, "57671680", Between(1024), _FIXED, "Largest answer to a fetch in bytes."),
    (
        "max.incremental.fetch.session.cache.slots",
        _I,
        "1000",
        _NOT_NEGATIVE,
        _FIXED,
        "Fetch sessions that are kept (KIP-227).",
    ),
    (
        "max.request.partition.size.limit",
        _I,
        "2000",
        _POSITIVE,
        _FIXED,
        "Partitions that one page of DescribeTopicPartitions may have.",
    ),
)

_REPLICATION: Final[tuple[_Row, ...]] = (
    (
        "broker.session.timeout.ms",
        _I,
        "9000",
        None,
        _FIXED,
        "Milliseconds after which a silent broker is fenced.",
    ),
    (
        "broker.heartbeat.interval.ms",
        _I,
        "2000",
        None,
        _FIXED,
        "Milliseconds between two heartbeats of a broker.",
    ),
    (
        "replica.lag.time.max.ms",
        _L,
        "30000",
        None,
        _FIXED,
        "Milliseconds after which a follower that has not caught up leaves the in-sync replicas.",
    ),
    (
        "replica.fetch.max.bytes",
        _I,
        "1048576",
        _NOT_NEGATIVE,
        _FIXED,
        "Bytes per partition in a follower's fetch.",
    ),
    ("replica.fetch.min.bytes", _I, "1", None, _FIXED, "Bytes for which a follower's fetch waits."),
    ("replica.fetch.wait.max.ms", _I, "500", None, _FIXED, "Milliseconds that a follower's fetch may wait."),
    (
        "replica.fetch.backoff.ms",
        _I,
        "1000",
        _NOT_NEGATIVE,
        _FIXED,
        "Milliseconds of rest after a failed fetch.",
    ),
    (
        "replica.fetch.response.max.bytes",
        _I,
        "10485760",
        _NOT_NEGATIVE,
        _FIXED,
        "Bytes of an answer to a follower's fetch.",
    ),
    ("num.replica.fetchers", _I, "1", None, _CLUSTER, "Threads per leader that a follower fetches with."),
    (
        "replica.high.watermark.checkpoint.interval.ms",
        _L,
        "5000",
        None,
        _FIXED,
        "Milliseconds between two checkpoints of the high watermarks.",
    ),
    (
        "auto.leader.rebalance.enable",
        _B,
        "true",
        None,
        _FIXED,
        "Whether leadership moves back to preferred leaders.",
    ),
    (
        "leader.imbalance.check.interval.seconds",
        _L,
        "300",
        _POSITIVE,
        _FIXED,
        "Seconds between two looks for leadership that should move back.",
    ),
    (
        "controlled.shutdown.enable",
        _B,
        "true",
        None,
        _FIXED,
        "Whether a stopping broker hands over leadership.",
    ),
)

_GROUPS: Final[tuple[_Row, ...]] = (
    ("group.min.session.timeout.ms", _I, "6000", None, _FIXED, "Least session timeout of a classic member."),
    (
        "group.max.session.timeout.ms",
        _I,
        "1800000",
        None,
        _FIXED,
        "Greatest session timeout of a classic member.",
    ),
    ("group.initial.rebalance.delay.ms", _I, "3000", None, _FIXED, "Wait for more members of a new group."),
    ("group.max.size", _I, _INT_MAX_TEXT, _POSITIVE, _FIXED, "Members of a classic group at most."),
    (
        "group.coordinator.rebalance.protocols",
        _LIST,
        "classic,consumer,streams",
        EachOf(("classic", "consumer", "share", "streams")),
        _FIXED,
        "Group protocols that are served.",
    ),
    ("group.coordinator.threads", _I, "4", _POSITIVE, _FIXED, "Threads of the group coordinator."),
    ("group.consumer.session.timeout.ms", _I, "45000", _POSITIVE, _FIXED, "Session timeout (KIP-848)."),
    (
        "group.consumer.min.session.timeout.ms",
        _I,
        "45000",
        _POSITIVE,
        _FIXED,
        "Least session timeout of a group.",
    ),
    (
        "group.consumer.max.session.timeout.ms",
        _I,
        "60000",
        _POSITIVE,
        _FIXED,
        "Greatest session timeout of a group.",
    ),
    ("group.consumer.heartbeat.interval.ms", _I, "5000", _POSITIVE, _FIXED, "Heartbeat interval (KIP-848)."),
    ("group.consumer.min.heartbeat.interval.ms", _I, "5000", _POSITIVE, _FIXED, "Least heartbeat interval."),
    (
        "group.consumer.max.heartbeat.interval.ms",
        _I,
        "15000",
        _POSITIVE,
        _FIXED,
        "Greatest heartbeat interval.",
    ),
    ("group.consumer.max.size", _I, _INT_MAX_TEXT, _POSITIVE, _FIXED, "Members of a consumer group at most."),
    (
        "group.consumer.assignors",
        _LIST,
        "uniform,range",
        None,
        _FIXED,
        "Assignors, the first being the default.",
    ),
    (
        "group.consumer.migration.policy",
        _S,
        "bidirectional",
        OneOf(("bidirectional", "disabled", "downgrade", "upgrade")),
        _FIXED,
        "Ways in which groups may change between the classic and the consumer protocol.",
    ),
    ("offset.metadata.max.bytes", _I, "4096", None, _FIXED, "Bytes of metadata with a committed offset."),
    (
        "offsets.load.buffer.size",
        _I,
        "5242880",
        _POSITIVE,
        _FIXED,
        "Bytes per read while offsets are loaded.",
    ),
    (
        "offsets.commit.timeout.ms",
        _I,
        "5000",
        _POSITIVE,
        _FIXED,
        "Milliseconds that an offset commit may take.",
    ),
    (
        "offsets.retention.minutes",
        _I,
        "10080",
        _POSITIVE,
        _FIXED,
        "Minutes that offsets of an empty group are kept.",
    ),
    (
        "offsets.retention.check.interval.ms",
        _L,
        "600000",
        _POSITIVE,
        _FIXED,
        "Milliseconds between two looks for offsets that are past their time.",
    ),
    ("offsets.topic.num.partitions", _I, "50", _POSITIVE, _FIXED, "Partitions of __consumer_offsets."),
    ("offsets.topic.replication.factor", _SHORT, "3", _POSITIVE, _FIXED, "Replicas of __consumer_offsets."),
    (
        "offsets.topic.segment.bytes",
        _I,
        "104857600",
        _POSITIVE,
        _FIXED,
        "Segment size of __consumer_offsets.",
    ),
    ("offsets.topic.compression.codec", _I, "0", None, _FIXED, "Codec in which offsets are stored."),
)

_TRANSACTIONS: Final[tuple[_Row, ...]] = (
    (
        "transaction.state.log.num.partitions",
        _I,
        "50",
        _POSITIVE,
        _FIXED,
        "Partitions of __transaction_state.",
    ),
    (
        "transaction.state.log.replication.factor",
        _SHORT,
        "3",
        _POSITIVE,
        _FIXED,
        "Replicas of __transaction_state.",
    ),
    (
        "transaction.state.log.min.isr",
        _I,
        "2",
        _POSITIVE,
        _FIXED,
        "In-sync replicas __transaction_state needs.",
    ),
    ("transaction.state.log.segment.bytes", _I, "104857600", _POSITIVE, _FIXED, "Its segment size in bytes."),
    ("transaction.max.timeout.ms", _I, "900000", _POSITIVE, _FIXED, "Longest transaction in milliseconds."),
    (
        "transactional.id.expiration.ms",
        _I,
        "604800000",
        _POSITIVE,
        _FIXED,
        "Life of an unused transactional id.",
    ),
    (
        "transaction.partition.verification.enable",
        _B,
        "true",
        None,
        _CLUSTER,
        "Whether a partition checks that it is part of a transaction before it appends.",
    ),
    ("producer.id.expiration.ms", _I, "86400000", _POSITIVE, _CLUSTER, "Life of an unused producer id."),
)

_SECURITY: Final[tuple[_Row, ...]] = (
    (
        "security.inter.broker.protocol",
        _S,
        "PLAINTEXT",
        OneOf(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
        _FIXED,
        "Security protocol between brokers.",
    ),
    ("sasl.enabled.mechanisms", _LIST, "GSSAPI", None, _PER_BROKER, "SASL mechanisms that clients may use."),
    (
        "ssl.client.auth",
        _S,
        "none",
        OneOf(("required", "requested", "none")),
        _PER_BROKER,
        "Whether clients show a certificate.",
    ),
    ("ssl.keystore.location", _S, None, None, _PER_BROKER, "The key store file."),
    ("ssl.keystore.password", _P, None, None, _PER_BROKER, "The password of the key store."),
    ("ssl.key.password", _P, None, None, _PER_BROKER, "The password of the private key."),
    ("ssl.truststore.location", _S, None, None, _PER_BROKER, "The trust store file."),
    ("ssl.truststore.password", _P, None, None, _PER_BROKER, "The password of the trust store."),
    ("authorizer.class.name", _S, "", None, _FIXED, "The authorizer; empty allows everything."),
)


def _definition(row: _Row) -> ConfigDef:
    name, type_, default, validator, mode, documentation = row
    return ConfigDef(name, type_, default, documentation, validator, update_mode=mode)


BROKER_SETTINGS: Final[Mapping[str, ConfigDef]] = table_of(
    BROKER_LOG_SETTINGS
    + tuple(
        _definition(row) for row in _TOPICS + _NETWORK + _REPLICATION + _GROUPS + _TRANSACTIONS + _SECURITY
    )
)
"""Every broker setting that is known, by name."""


def validate_broker_change(name: str, text: str | None, broker_id: str) -> ConfigValue:
    """The value of a broker setting that is to change while brokers run; None when it is being unset.

    `broker_id` is empty for the cluster-wide default. Raises KafkaError INVALID_CONFIG for an unknown name or
    value, INVALID_REQUEST for a setting that cannot change, or not there (as Kafka answers).
    """
    definition = BROKER_SETTINGS.get(name)
    if definition is None:
        raise KafkaError(ErrorCode.invalid_config, f"Unknown broker config name: {name}")
    if definition.update_mode is UpdateMode.READ_ONLY:
        raise KafkaError(
            ErrorCode.invalid_request,
            f"Cannot update these configs dynamically: {name} is read at start; set it there and restart.",
        )
    if definition.update_mode is UpdateMode.PER_BROKER and not broker_id:
        raise KafkaError(
            ErrorCode.invalid_request,
            f"Cannot update these configs at default cluster level: {name} belongs to one broker; name its id.",
        )
    return None if text is None else definition.parse(text)
