"""Dashboards of what is stored: storage nodes and replication, and one topic."""

from __future__ import annotations

from typing import Final

from generator.panels import ANY_IS_BAD, GREEN, ORANGE, RED, Dashboard, Query, Row, Variable, graph, number
from generator.promql import C, quantile, rate, total

_TOPICS: Final = "kafka_server_brokertopicmetrics_"
_REPLICAS: Final = "kafka_server_replicamanager_"
_CLEANER: Final = "kafka_log_logcleanermanager_"
_DISK: Final = "barnabas_storage_log_directory_"
_I: Final = 'instance=~"$instance"'
_T: Final = 'topic=~"$topic"'


_REPLICATION = Row(
    "Replication",
    (
        number(
            "Under-replicated",
            "Led partitions with fewer in-sync replicas than replicas.",
            "none",
            total(f"{_REPLICAS}underreplicatedpartitions", _I),
            thresholds=((None, GREEN), (1, ORANGE)),
            width=6,
        ),
        number(
            "Below min.insync.replicas",
            "Led partitions where acks=all is refused.",
            "none",
            total(f"{_REPLICAS}underminisrpartitioncount", _I),
            thresholds=ANY_IS_BAD,
            width=6,
        ),
        number(
            "At min.insync.replicas",
            "Led partitions where one more loss means refusal.",
            "none",
            total(f"{_REPLICAS}atminisrpartitioncount", _I),
            thresholds=((None, GREEN), (1, ORANGE)),
            width=6,
        ),
        number(
            "Offline replicas",
            "Replicas whose disk failed or whose log cannot be opened.",
            "none",
            total(f"{_REPLICAS}offlinereplicacount", _I),
            thresholds=ANY_IS_BAD,
            width=6,
        ),
        graph(
            "Leaders",
            "Partitions that each node leads; uneven is uneven load.",
            "none",
            Query(total(f"{_REPLICAS}leadercount", _I, by="instance"), "{{instance}}"),
        ),
        graph(
            "Partitions",
            "Partitions that each node has a replica of.",
            "none",
            Query(total(f"{_REPLICAS}partitioncount", _I, by="instance"), "{{instance}}"),
        ),
        graph(
            "In-sync replicas lost and regained",
            "Outside restarts there should be none.",
            "cps",
            Query(rate(f"{_REPLICAS}isrshrinks_total", _I), "lost"),
            Query(rate(f"{_REPLICAS}isrexpands_total", _I), "regained"),
            Query(rate(f"{_REPLICAS}failedisrupdates_total", _I), "refused"),
        ),
        graph(
            "Followers' lag",
            "Committed offsets that each node's followers lack, by the node that leads.",
            "none",
            Query(
                total("barnabas_storage_follower_lag", _I, by="instance, leader"),
                "{{instance}} behind {{leader}}",
            ),
        ),
        graph(
            "Copied",
            "Bytes of record batches that followers copied; of them, for replicas that reassignments add.",
            "Bps",
            Query(rate(f"{_TOPICS}replicationbytesin_total", _I, by="instance"), "{{instance}}"),
            Query(rate(f"{_TOPICS}reassignmentbytesin_total", _I, by="instance"), "{{instance}} reassigned"),
        ),
        graph(
            "Followers that have failed",
            "They copy nothing before there is another leader epoch; the node's log says why.",
            "none",
            Query(
                total("kafka_server_replicafetchermanager_failedpartitionscount", _I, by="instance"),
                "{{instance}}",
            ),
            thresholds=ANY_IS_BAD,
        ),
    ),
)

_ON_THE_WAY = Row(
    "Reassignments, moves and drains",
    (
        graph(
            "Reassignments",
            "Partitions that are being reassigned, and the replicas that they still wait for.",
            "none",
            Query(total("barnabas_controller_reassigning_partitions"), "partitions"),
            Query(total("barnabas_controller_replicas_being_added"), "replicas to come"),
        ),
        graph(
            "Replicas on cordoned nodes",
            "What is left of a drain, and the nodes that get nothing new.",
            "none",
            Query(total("barnabas_controller_replicas_on_cordoned_nodes"), "replicas to go"),
            Query(total("barnabas_controller_cordoned_nodes"), "nodes"),
        ),
        graph(
            "Cordoned directories",
            "Log directories into which nothing new comes.",
            "none",
            Query(total("kafka_log_logmanager_cordonedlogdirectorycount", _I, by="instance"), "{{instance}}"),
        ),
        graph(
            "To be moved between directories",
            "Bytes that moves to another log directory of their node have still to copy.",
            "bytes",
            Query(total("barnabas_storage_bytes_to_move", _I, by="instance"), "{{instance}}"),
        ),
        graph(
            "Moved between directories",
            "Bytes of record batches that these moves copied.",
            "Bps",
            Query(rate("barnabas_storage_moved_bytes_total", _I, by="instance"), "{{instance}}"),
        ),
        graph(
            "Moves that failed",
            "The replica goes on where it is; the node's log says which disk failed.",
            "none",
            Query(
                total("kafka_server_replicaalterlogdirsmanager_failedpartitionscount", _I, by="instance"),
                "{{instance}}",
            ),
            thresholds=((None, GREEN), (1, ORANGE)),
        ),
        graph(
            "Throttles in force",
            "Nodes, or topics, with a setting by which replicas are copied slowly.",
            "none",
            Query(total("barnabas_controller_throttles", by="setting"), "{{setting}}"),
        ),
        graph(
            "Copied under a throttle",
            "What throttled replicas were sent and have copied, in-sync ones counted.",
            "Bps",
            Query(total("kafka_server_leaderreplication_byte_rate", _I, by="instance"), "sent {{instance}}"),
            Query(
                total("kafka_server_followerreplication_byte_rate", _I, by="instance"), "copied {{instance}}"
            ),
        ),
    ),
)

_APPENDS = Row(
    "Appends and reads",
    (
        graph(
            "Bytes",
            "Bytes of record batches appended, and read by clients.",
            "Bps",
            Query(rate(f"{_TOPICS}bytesin_total", _I, by="instance"), "in {{instance}}"),
            Query(rate(f"{_TOPICS}bytesout_total", _I, by="instance"), "out {{instance}}"),
        ),
        graph(
            "Appends and reads of partitions",
            "One for each partition of a request.",
            "cps",
            Query(rate(f"{_TOPICS}totalproducerequests_total", _I), "appends"),
            Query(rate(f"{_TOPICS}totalfetchrequests_total", _I), "reads"),
        ),
        graph(
            "Failed by this node's fault",
            "Disk, too few replicas, a fault.",
            "cps",
            Query(rate(f"{_TOPICS}failedproducerequests_total", _I), "appends"),
            Query(rate(f"{_TOPICS}failedfetchrequests_total", _I), "reads"),
        ),
        graph(
            "Append (p99)",
            "Checking and writing one partition's batches to the page cache.",
            "s",
            Query(quantile(0.99, "barnabas_storage_append_seconds", _I, by="instance"), "{{instance}}"),
            thresholds=((None, GREEN), (0.01, ORANGE)),
        ),
        graph(
            "Read (p99)",
            "Reading for one fetch, without those that had to wait for the disk.",
            "s",
            Query(quantile(0.99, "barnabas_storage_read_seconds", _I, by="instance"), "{{instance}}"),
        ),
        graph(
            "Cold fetches",
            "Fetches that had to be read from disk: consumers far behind.",
            "cps",
            Query(rate("barnabas_storage_cold_fetches_total", _I, by="instance"), "{{instance}}"),
        ),
        graph(
            "Refused appends",
            "By error; CORRUPT_MESSAGE is a broken client or network.",
            "cps",
            Query(rate("barnabas_storage_refused_appends_total", _I, by="error"), "{{error}}"),
        ),
        graph(
            "Requests that wait",
            "Fetches for data, appends for a sync or a replica.",
            "none",
            Query(
                total(
                    "kafka_server_delayedoperationpurgatory_purgatorysize",
                    _I,
                    'delayedOperation=~"Fetch|Produce"',
                    by="delayedOperation",
                ),
                "{{delayedOperation}}",
            ),
        ),
    ),
)

_DISKS = Row(
    "Disks and compaction",
    (
        graph(
            "Disk free",
            "Share of a log directory's disk that is free.",
            "percentunit",
            Query(
                f"{_DISK}free_bytes{{{C}, {_I}}} / ({_DISK}size_bytes{{{C}, {_I}}} > 0)",
                "{{instance}} {{log_directory}}",
            ),
            thresholds=((None, RED), (0.1, ORANGE), (0.2, GREEN)),
            maximum=1,
        ),
        graph(
            "Log size",
            "Bytes of all segments.",
            "bytes",
            Query(total("kafka_log_log_size", _I, by="instance"), "{{instance}}"),
        ),
        graph(
            "Sync (p99)",
            "Syncs of a log to disk.",
            "ms",
            Query(
                quantile(0.99, "kafka_log_logflushstats_logflushrateandtimems", _I, by="instance"),
                "{{instance}}",
            ),
            thresholds=((None, GREEN), (100, RED)),
        ),
        graph(
            "Dirtiest log",
            "Uncompacted share of the dirtiest compacted log.",
            "percent",
            Query(total(f"{_CLEANER}max_dirty_percent", _I, by="instance"), "{{instance}}"),
            maximum=100,
        ),
        graph(
            "Compaction",
            "Logs compacted.",
            "cps",
            Query(rate("barnabas_storage_cleaner_runs_total", _I, by="instance"), "{{instance}}"),
        ),
        graph(
            "Uncleanable partitions",
            "Partitions that cannot be compacted.",
            "none",
            Query(total(f"{_CLEANER}uncleanable_partitions_count", _I, by="instance"), "{{instance}}"),
            thresholds=ANY_IS_BAD,
        ),
    ),
)

STORAGE = Dashboard(
    "storage",
    "Storage and replication",
    "Replicas and where they are on their way to, appends and reads, disks and compaction, by storage node.",
    (Variable("instance", f"{_REPLICAS}leadercount", "instance", "Storage node"),),
    (_REPLICATION, _ON_THE_WAY, _APPENDS, _DISKS),
)

_TOPIC = Row(
    "Traffic",
    (
        graph(
            "Records in",
            "Records appended.",
            "cps",
            Query(rate(f"{_TOPICS}messagesin_total", _T, by="topic"), "{{topic}}"),
        ),
        graph(
            "Bytes in",
            "Bytes of record batches appended.",
            "Bps",
            Query(rate(f"{_TOPICS}bytesin_total", _T, by="topic"), "{{topic}}"),
        ),
        graph(
            "Bytes out",
            "Bytes of record batches that clients read.",
            "Bps",
            Query(rate(f"{_TOPICS}bytesout_total", _T, by="topic"), "{{topic}}"),
        ),
        graph(
            "Appends and reads",
            "One for each partition of a request.",
            "cps",
            Query(rate(f"{_TOPICS}totalproducerequests_total", _T, by="topic"), "appends {{topic}}"),
            Query(rate(f"{_TOPICS}totalfetchrequests_total", _T, by="topic"), "reads {{topic}}"),
        ),
        graph(
            "Failed",
            "By a storage node's fault.",
            "cps",
            Query(rate(f"{_TOPICS}failedproducerequests_total", _T, by="topic"), "appends {{topic}}"),
            Query(rate(f"{_TOPICS}failedfetchrequests_total", _T, by="topic"), "reads {{topic}}"),
        ),
        graph(
            "Bytes refused",
            "Bytes of record batches that the topic does not take.",
            "Bps",
            Query(rate(f"{_TOPICS}bytesrejected_total", _T, by="topic"), "{{topic}}"),
        ),
    ),
)

_LOG = Row(
    "Log",
    (
        graph(
            "Size",
            "Bytes of all segments of the led partitions.",
            "bytes",
            Query(total("kafka_log_log_size", _T, by="topic"), "{{topic}}"),
        ),
        graph(
            "Records kept",
            "Offsets between the log's start and its end, by partition.",
            "none",
            Query(
                f"{total('kafka_log_log_logendoffset', _T, by='topic, partition')} - "
                f"{total('kafka_log_log_logstartoffset', _T, by='topic, partition')}",
                "{{topic}}-{{partition}}",
            ),
        ),
        graph(
            "Segments",
            "Far above other topics: retention or compaction is stuck.",
            "none",
            Query(total("kafka_log_log_numlogsegments", _T, by="topic"), "{{topic}}"),
        ),
        graph(
            "End offset",
            "The offset that the next record gets.",
            "none",
            Query(total("kafka_log_log_logendoffset", _T, by="topic, partition"), "{{topic}}-{{partition}}"),
            width=12,
        ),
        graph(
            "Readers' lag",
            "Records that each group has not consumed yet.",
            "none",
            Query(
                total("kafka_consumergroup_lag", _T, by="consumergroup, topic"), "{{consumergroup}} {{topic}}"
            ),
            width=12,
        ),
    ),
)

TOPIC = Dashboard(
    "topic",
    "Topic",
    "One topic, or several: traffic, log, readers.",
    (Variable("topic", f"{_TOPICS}messagesin_total", "topic", "Topic"),),
    (_TOPIC, _LOG),
)
