"""Dashboards of groups and of the controller."""

from __future__ import annotations

from typing import Final

from generator.panels import ANY_IS_BAD, GREEN, ORANGE, RED, Dashboard, Query, Row, Variable, graph, number
from generator.promql import C, quantile, rate, total

_GROUPS: Final = "kafka_coordinator_group_groupmetadatamanager_num"
_CONTROLLER: Final = "kafka_controller_kafkacontroller_"
_STATS: Final = "kafka_controller_controllerstats_"
_G: Final = 'consumergroup=~"$group"'
_T: Final = 'topic=~"$topic"'

_LAG = Row(
    "Lag",
    (
        graph(
            "Lag in records",
            "Offsets between the committed one and the end, by group and topic.",
            "none",
            Query(
                total("kafka_consumergroup_lag", _G, _T, by="consumergroup, topic"),
                "{{consumergroup}} {{topic}}",
            ),
        ),
        graph(
            "Lag in seconds",
            "Age of the oldest record that is not consumed yet; of a topic's partitions the worst.",
            "s",
            Query(
                f"max by (consumergroup, topic) (barnabas_consumergroup_lag_seconds{{{C}, {_G}, {_T}}})",
                "{{consumergroup}} {{topic}}",
            ),
            thresholds=((None, GREEN), (300, ORANGE), (900, RED)),
        ),
        graph(
            "Consumed",
            "How fast committed offsets move.",
            "cps",
            Query(
                f"sum by (consumergroup, topic) (deriv(kafka_consumergroup_current_offset{{{C}, {_G}, {_T}}}"
                "[$__rate_interval]))",
                "{{consumergroup}} {{topic}}",
            ),
        ),
        graph(
            "Worst partitions",
            "The ten partitions with the most records left.",
            "none",
            Query(
                f"topk(10, sum by (consumergroup, topic, partition) (kafka_consumergroup_lag{{{C}, {_G}, {_T}}}))",
                "{{consumergroup}} {{topic}}-{{partition}}",
            ),
        ),
        graph(
            "Members",
            "Members of each group.",
            "none",
            Query(total("kafka_consumergroup_members", _G, by="consumergroup"), "{{consumergroup}}"),
        ),
        graph(
            "Lag not known",
            "Partitions with a committed offset and no lag: over the bound, or without an answer from their leader.",
            "none",
            Query(total("barnabas_coordinator_lag_left_out_partitions", by="instance"), "{{instance}}"),
        ),
    ),
)

_STATES = Row(
    "Groups and rebalances",
    (
        graph(
            "Groups by state",
            "Groups that stay in a rebalance have members that do not come back.",
            "none",
            *(
                Query(total(f"{_GROUPS}groups{state}"), legend)
                for state, legend in (
                    ("stable", "stable"),
                    ("preparingrebalance", "preparing rebalance"),
                    ("completingrebalance", "completing rebalance"),
                    ("empty", "empty"),
                    ("dead", "dead"),
                )
            ),
            stacked=True,
        ),
        graph(
            "Rebalances",
            "Generations that got their assignment.",
            "cps",
            Query(rate("barnabas_coordinator_completed_rebalances_total", by="instance"), "{{instance}}"),
        ),
        graph(
            "Offset commits",
            "Offsets committed, and deleted after their retention.",
            "cps",
            Query(rate("barnabas_coordinator_offset_commits_total"), "committed"),
            Query(rate("barnabas_coordinator_offset_expirations_total"), "expired"),
        ),
        graph(
            "Waiting requests",
            "JoinGroup and SyncGroup that wait for other members; sessions that run.",
            "none",
            Query(
                total(
                    "kafka_server_delayedoperationpurgatory_purgatorysize",
                    'delayedOperation=~"Rebalance|Heartbeat"',
                    by="delayedOperation",
                ),
                "{{delayedOperation}}",
            ),
        ),
        graph(
            "Write to __consumer_offsets (p99)",
            "Until it was committed: how slow an OffsetCommit is.",
            "s",
            Query(quantile(0.99, "barnabas_coordinator_append_seconds", by="instance"), "{{instance}}"),
            thresholds=((None, GREEN), (0.5, RED)),
        ),
        graph(
            "Partitions of __consumer_offsets",
            "Served, and owned but not loaded yet.",
            "none",
            Query(total("barnabas_coordinator_loaded_partitions", by="instance"), "served {{instance}}"),
            Query(total("barnabas_coordinator_loading_partitions", by="instance"), "loading {{instance}}"),
        ),
        graph(
            "Loading a partition (p99)",
            "Reading a partition of __consumer_offsets.",
            "s",
            Query(
                quantile(0.99, "barnabas_coordinator_partition_load_seconds", by="instance"), "{{instance}}"
            ),
            width=12,
        ),
        graph(
            "Dropped partitions",
            "Times that a partition's state was dropped, because its log refused a write or could not be reached.",
            "cps",
            Query(rate("barnabas_coordinator_partition_failures_total", by="instance"), "{{instance}}"),
            thresholds=((None, GREEN), (0.01, RED)),
            width=12,
        ),
    ),
)

GROUPS = Dashboard(
    "groups",
    "Groups and lag",
    "How far consumer groups are behind, and how their coordinators do.",
    (
        Variable("group", "kafka_consumergroup_current_offset", "consumergroup", "Group"),
        Variable("topic", "kafka_consumergroup_current_offset", "topic", "Topic"),
    ),
    (_LAG, _STATES),
)

_CLUSTER = Row(
    "Cluster",
    (
        number(
            "Active controllers",
            "Exactly one.",
            "none",
            total(f"{_CONTROLLER}activecontrollercount"),
            thresholds=((None, RED), (1, GREEN), (2, ORANGE)),
        ),
        number("Topics", "Topics.", "none", total(f"{_CONTROLLER}globaltopiccount")),
        number("Partitions", "Partitions.", "none", total(f"{_CONTROLLER}globalpartitioncount")),
        number(
            "Fenced nodes",
            "Storage nodes that are known and away.",
            "none",
            total(f"{_CONTROLLER}fencedbrokercount"),
            thresholds=ANY_IS_BAD,
        ),
        number(
            "Offline partitions",
            "Partitions without a leader.",
            "none",
            total(f"{_CONTROLLER}offlinepartitionscount"),
            thresholds=ANY_IS_BAD,
        ),
        number(
            "Not at their preferred leader",
            "Partitions led by another than their first replica.",
            "none",
            total(f"{_CONTROLLER}preferredreplicaimbalancecount"),
            thresholds=((None, GREEN), (1, ORANGE)),
        ),
        graph(
            "Who is active",
            "1 on the active controller.",
            "none",
            Query(total(f"{_CONTROLLER}activecontrollercount", by="instance"), "{{instance}}"),
        ),
        graph(
            "Registered",
            "Storage nodes, gateways, coordinators that are there.",
            "none",
            Query(total(f"{_CONTROLLER}activebrokercount"), "storage nodes"),
            Query(total("barnabas_controller_registered_gateways"), "gateways"),
            Query(total("barnabas_controller_registered_coordinators"), "coordinators"),
        ),
        graph(
            "Metadata revision",
            "Grows with every change.",
            "none",
            Query(total(f"{_CONTROLLER}lastcommittedrecordoffset", by="instance"), "{{instance}}"),
        ),
    ),
)

_CHANGES = Row(
    "Changes",
    (
        graph(
            "Waiting (p99)",
            "A change of metadata waited for those before it.",
            "ms",
            Query(quantile(0.99, f"{_CONTROLLER}eventqueuetimems", by="instance"), "{{instance}}"),
            thresholds=((None, GREEN), (1000, RED)),
        ),
        graph(
            "Deciding and storing (p99)",
            "The changes that were waiting together.",
            "ms",
            Query(quantile(0.99, f"{_CONTROLLER}eventqueueprocessingtimems", by="instance"), "{{instance}}"),
            thresholds=((None, GREEN), (500, RED)),
        ),
        graph(
            "Changes",
            "Changes decided.",
            "cps",
            Query(rate(f"{_CONTROLLER}eventqueuetimems_count", by="instance"), "{{instance}}"),
        ),
        graph(
            "Leader elections",
            "Partitions that got another leader, or one again; those from outside the in-sync replicas lost records.",
            "cps",
            Query(rate("barnabas_controller_elected_partitions_total"), "elected"),
            Query(rate(f"{_STATS}uncleanleaderelections_total"), "unclean"),
        ),
        graph(
            "Election (p99)",
            "From the decision until it was stored.",
            "ms",
            Query(quantile(0.99, f"{_STATS}leaderelectionrateandtimems", by="instance"), "{{instance}}"),
        ),
        graph(
            "Nodes fenced",
            "Storage nodes whose stream stayed broken.",
            "cps",
            Query(rate(f"{_CONTROLLER}timedoutbrokerheartbeatcount_total"), "fenced"),
        ),
    ),
)

CONTROLLER = Dashboard(
    "controller",
    "Controller",
    "Who is active, what it knows, how fast it decides.",
    (),
    (_CLUSTER, _CHANGES),
)
