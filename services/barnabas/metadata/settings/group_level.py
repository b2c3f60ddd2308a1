"""The settings that a group can have of its own (KIP-848, KIP-932, KIP-1071).

Each falls back to the broker setting of the same name after `group.`, where there is one.
"""

from __future__ import annotations

from typing import Final

from barnabas.metadata.settings.row import (
    BOOLEAN,
    CLUSTER,
    INT,
    MEDIUM,
    NOT_NEGATIVE,
    POSITIVE,
    STRING,
    Row,
)
from barnabas.metadata.validators import Between, OneOf, WhereToBegin

SETTINGS: Final[tuple[Row, ...]] = (
    ("consumer.assignment.interval.ms", INT, "1000", NOT_NEGATIVE, MEDIUM, CLUSTER,
     "Milliseconds between two computations of the consumer group's assignment."),
    ("consumer.heartbeat.interval.ms", INT, "5000", POSITIVE, MEDIUM, CLUSTER,
     "Milliseconds between two heartbeats of a member of the consumer group."),
    ("consumer.session.timeout.ms", INT, "45000", POSITIVE, MEDIUM, CLUSTER,
     "Milliseconds without a heartbeat after which a member of the consumer group is taken for gone."),
    ("share.assignment.interval.ms", INT, "1000", NOT_NEGATIVE, MEDIUM, CLUSTER,
     "Milliseconds between two computations of the share group's assignment."),
    ("share.auto.offset.reset", STRING, "latest", WhereToBegin(), MEDIUM, CLUSTER,
     "Where the share group begins in a partition that it has not read."),
    ("share.delivery.count.limit", INT, "5", Between(2), MEDIUM, CLUSTER,
     "Times that a record is delivered to the share group before it is given up."),
    ("share.heartbeat.interval.ms", INT, "5000", POSITIVE, MEDIUM, CLUSTER,
     "Milliseconds between two heartbeats of a member of the share group."),
    ("share.isolation.level", STRING, "read_uncommitted",
     OneOf(("read_committed", "read_uncommitted")), MEDIUM, CLUSTER,
     "Whether the share group reads records of open and aborted transactions."),
    ("share.partition.max.record.locks", INT, "2000", Between(100), MEDIUM, CLUSTER,
     "Records of a partition that members of the share group may hold at a time."),
    ("share.record.lock.duration.ms", INT, "30000", Between(1000), MEDIUM, CLUSTER,
     "Milliseconds for which a record belongs to the member that took it."),
    ("share.renew.acknowledge.enable", BOOLEAN, "true", None, MEDIUM, CLUSTER,
     "Whether a member may keep a record longer by renewing its lock."),
    ("share.session.timeout.ms", INT, "45000", POSITIVE, MEDIUM, CLUSTER,
     "Milliseconds without a heartbeat after which a member of the share group is taken for gone."),
    ("streams.assignment.interval.ms", INT, "1000", NOT_NEGATIVE, MEDIUM, CLUSTER,
     "Milliseconds between two computations of the streams group's assignment."),
    ("streams.heartbeat.interval.ms", INT, "5000", POSITIVE, MEDIUM, CLUSTER,
     "Milliseconds between two heartbeats of a member of the streams group."),
    ("streams.initial.rebalance.delay.ms", INT, "3000", NOT_NEGATIVE, MEDIUM, CLUSTER,
     "Milliseconds that the streams group waits for more members when it is new."),
    ("streams.num.standby.replicas", INT, "0", NOT_NEGATIVE, MEDIUM, CLUSTER,
     "Standby replicas of each task of the streams group."),
    ("streams.session.timeout.ms", INT, "45000", POSITIVE, MEDIUM, CLUSTER,
     "Milliseconds without a heartbeat after which a member of the streams group is taken for gone."),
)  # fmt: skip
