"""Alerts for causes that somebody has to mend whatever the objectives say, one row each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

PAGE, TICKET = "page", "ticket"


@dataclass(frozen=True)
class Cause:
    """`holds` is PromQL; it must be so for `lasting` before anybody is told."""

    name: str
    severity: str
    lasting: str
    holds: str
    summary: str
    page: str = ""
    """Its runbook, where that is not named for it."""

    @property
    def runbook(self) -> str:
        """NoActiveController -> no-active-controller."""
        return self.page or re.sub(r"(?<!^)(?=[A-Z])", "-", self.name).lower()


_CONTROLLER: Final = "kafka_controller_kafkacontroller_"
_REPLICAS: Final = "kafka_server_replicamanager_"
_DISK: Final = "barnabas_storage_log_directory_"

CAUSES: Final = (
    Cause(
        "NoActiveController",
        PAGE,
        "1m",
        f"sum by (cluster) ({_CONTROLLER}activecontrollercount) == 0\n"
        f"  or absent({_CONTROLLER}activecontrollercount)",
        "No controller is active: topics, leaders and registrations cannot change",
    ),
    Cause(
        "SeveralActiveControllers",
        TICKET,
        "2m",
        f"sum by (cluster) ({_CONTROLLER}activecontrollercount) > 1",
        "{{ $value }} controllers say that they are active; only one of them can write",
    ),
    Cause(
        "OfflinePartitions",
        PAGE,
        "1m",
        f"max by (cluster) ({_CONTROLLER}offlinepartitionscount) > 0",
        "{{ $value }} partitions have no leader: they take and give nothing",
    ),
    Cause(
        "UnderMinInSyncReplicas",
        PAGE,
        "2m",
        f"sum by (cluster) ({_REPLICAS}underminisrpartitioncount) > 0",
        "{{ $value }} partitions have fewer in-sync replicas than min.insync.replicas: acks=all is refused",
    ),
    Cause(
        "UnderReplicatedPartitions",
        TICKET,
        "10m",
        "max by (cluster) (barnabas_controller_underreplicated_partitions) > 0",
        "{{ $value }} partitions lack an in-sync replica",
    ),
    Cause(
        "InSyncReplicasChurn",
        TICKET,
        "15m",
        f"sum by (cluster) (rate({_REPLICAS}isrshrinks_total[5m])) > 0",
        "In-sync replicas have been lost again and again for a quarter of an hour",
    ),
    Cause(
        "FollowersFailed",
        TICKET,
        "5m",
        "max by (cluster, job, instance) (kafka_server_replicafetchermanager_failedpartitionscount) > 0",
        "{{ $value }} followers on {{ $labels.instance }} copy nothing",
    ),
    Cause(
        "ReassignmentStuck",
        TICKET,
        "30m",
        "max by (cluster) (barnabas_controller_replicas_being_added) > 0\n"
        "  and sum by (cluster) (rate(kafka_server_brokertopicmetrics_reassignmentbytesin_total[5m])) == 0",
        "{{ $value }} replicas are to be added, and nothing is copied to them",
    ),
    Cause(
        "ThrottlesLeft",
        TICKET,
        "30m",
        "max by (cluster, setting)"
        ' (barnabas_controller_throttles{setting!="replica.alter.log.dirs.io.max.bytes.per.second"}) > 0\n'
        "  unless on (cluster) max by (cluster) (barnabas_controller_reassigning_partitions) > 0",
        "{{ $value }} nodes or topics have {{ $labels.setting }}, though nothing is being reassigned",
    ),
    Cause(
        "DrainStopped",
        TICKET,
        "30m",
        "max by (cluster) (barnabas_controller_replicas_on_cordoned_nodes) > 0\n"
        "  unless on (cluster) max by (cluster) (barnabas_controller_reassigning_partitions) > 0",
        "{{ $value }} replicas are on nodes that are being drained, and nothing is being reassigned",
    ),
    Cause(
        "MoveStuck",
        TICKET,
        "30m",
        "max by (cluster, job, instance) (barnabas_storage_moving_replicas) > 0\n"
        "  and max by (cluster, job, instance) (rate(barnabas_storage_moved_bytes_total[5m])) == 0",
        "{{ $value }} replicas on {{ $labels.instance }} are to move to another log directory, and nothing is copied",
    ),
    Cause(
        "MoveFailed",
        TICKET,
        "0m",
        "max by (cluster, job, instance) (kafka_server_replicaalterlogdirsmanager_failedpartitionscount) > 0",
        "{{ $value }} replicas on {{ $labels.instance }} did not move to another log directory: a disk failed",
    ),
    Cause(
        "UncleanLeaderElection",
        PAGE,
        "0m",
        f"sum by (cluster) (increase({_CONTROLLER.replace('kafkacontroller_', 'controllerstats_')}"
        "uncleanleaderelections_total[15m])) > 0",
        "Leaders were elected that may lack acknowledged records",
    ),
    Cause(
        "OfflineReplicas",
        TICKET,
        "1m",
        f"max by (cluster, job, instance) ({_REPLICAS}offlinereplicacount) > 0",
        "{{ $value }} replicas on {{ $labels.instance }} cannot be used: a disk failed or a log does not open",
    ),
    Cause(
        "StorageNodeAway",
        TICKET,
        "5m",
        f"max by (cluster) ({_CONTROLLER}fencedbrokercount) > 0",
        "{{ $value }} storage nodes are fenced",
    ),
    Cause(
        "NoGateway",
        PAGE,
        "1m",
        'max by (cluster) (up{job=~"gateway|broker"}) == 0\n'
        '  or max by (cluster) (barnabas_service_ready{job="gateway"}) == 0',
        "No gateway answers: no client can reach the cluster",
    ),
    Cause(
        "GatewayDown",
        TICKET,
        "2m",
        'up{job=~"gateway|broker"} == 0 or barnabas_service_ready{job="gateway"} == 0',
        "Gateway {{ $labels.instance }} does not answer",
    ),
    Cause(
        "ServiceDown",
        TICKET,
        "2m",
        'up{job=~"storage|broker|controller|coordinator"} == 0\n'
        '  or barnabas_service_ready{job=~"storage|controller|coordinator"} == 0',
        "{{ $labels.job }} {{ $labels.instance }} does not answer",
    ),
    Cause(
        "RestartLoop",
        TICKET,
        "0m",
        'changes(process_start_time_seconds{job=~"gateway|storage|broker|controller|coordinator|canary"}[30m]) >= 3',
        "{{ $labels.job }} {{ $labels.instance }} started {{ $value }} times in half an hour",
    ),
    Cause(
        "EventLoopLag",
        TICKET,
        "10m",
        "histogram_quantile(0.99, sum by (cluster, job, instance, le) "
        "(rate(barnabas_event_loop_lag_seconds_bucket[5m]))) > 0.25",
        "The event loop of {{ $labels.job }} {{ $labels.instance }} is {{ $value | humanizeDuration }} late (p99)",
    ),
    Cause(
        "ProducersHeldBack",
        TICKET,
        "10m",
        "sum by (cluster, job, instance) (rate(barnabas_gateway_reading_paused_seconds_total[5m])) > 0.5",
        "Gateway {{ $labels.instance }} holds producers back: it has too much unanswered",
    ),
    Cause(
        "DiskNearlyFull",
        PAGE,
        "5m",
        f"{_DISK}free_bytes / ({_DISK}size_bytes > 0) < 0.1",
        "{{ $labels.log_directory }} on {{ $labels.instance }} has {{ $value | humanizePercentage }} left",
    ),
    Cause(
        "LogCleanerStuck",
        TICKET,
        "15m",
        "kafka_log_logcleanermanager_uncleanable_partitions_count > 0\n"
        "  or kafka_log_logcleanermanager_time_since_last_run_ms > 900000",
        "Compaction on {{ $labels.instance }} is stuck: compacted topics grow",
    ),
    Cause(
        "CoordinatorLoading",
        TICKET,
        "5m",
        "max by (cluster, job, instance) (barnabas_coordinator_loading_partitions) > 0\n"
        "  or max by (cluster, job, instance) (barnabas_coordinator_transactions_loading_partitions) > 0",
        "{{ $labels.instance }} has been loading {{ $value }} partitions of __consumer_offsets or __transaction_state: "
        "their groups and producers wait",
    ),
    Cause(
        "CoordinatorReadOnly",
        TICKET,
        "2m",
        "max by (cluster, job, instance) (barnabas_coordinator_read_only_partitions) > 0\n"
        "  or max by (cluster, job, instance) (barnabas_coordinator_transactions_read_only_partitions) > 0",
        "{{ $labels.instance }} has {{ $value }} partitions of __consumer_offsets or __transaction_state that take "
        "no writes",
    ),
    Cause(
        "TransactionHangs",
        TICKET,
        "5m",
        f"max by (cluster, job, instance) ({_REPLICAS}partitionswithlatetransactionscount) > 0",
        "{{ $value }} partitions on {{ $labels.instance }} have a transaction that should have ended: readers of "
        "committed records wait",
    ),
    Cause(
        "MarkersDoNotLand",
        TICKET,
        "2m",
        "max by (cluster, job, instance) (barnabas_coordinator_oldest_unmarked_transaction_seconds) > 60",
        "A transaction of {{ $labels.instance }} ended {{ $value | humanizeDuration }} ago, and some partition does "
        "not know it",
    ),
    Cause(
        "GroupFarBehind",
        TICKET,
        "15m",
        "max by (cluster, consumergroup, topic) (barnabas_consumergroup_lag_seconds) > 900",
        "Group {{ $labels.consumergroup }} is {{ $value | humanizeDuration }} behind on {{ $labels.topic }}",
    ),
    Cause(
        "CanaryAbsent",
        PAGE,
        "5m",
        "sum by (cluster) (rate(barnabas_canary_attempts_total[5m])) == 0\n"
        "  or absent(barnabas_canary_attempts_total)",
        "The canary is away: durability and what clients see are not measured",
    ),
    Cause(
        "CanaryRecordLost",
        PAGE,
        "0m",
        "sum by (cluster) (increase(barnabas_canary_lost_records_total[15m])) > 0",
        "Acknowledged records cannot be read",
        "durability",
    ),
    Cause(
        "CanaryRecordsOutOfOrder",
        TICKET,
        "0m",
        "sum by (cluster) (increase(barnabas_canary_duplicate_records_total[15m])) > 0\n"
        "  or sum by (cluster) (increase(barnabas_canary_out_of_order_records_total[15m])) > 0",
        "The canary read records twice or out of order",
    ),
)


def cause_groups(runbooks: str) -> list[dict[str, Any]]:
    """The rule group of all causes; `runbooks` is the address below which runbooks are."""
    rules = []
    for cause in CAUSES:
        rule: dict[str, Any] = {"alert": cause.name, "expr": cause.holds}
        if cause.lasting != "0m":
            rule["for"] = cause.lasting
        rule["labels"] = {"severity": cause.severity}
        rule["annotations"] = {"summary": cause.summary, "runbook_url": f"{runbooks}/{cause.runbook}.md"}
        rules.append(rule)
    return [{"name": "causes", "rules": rules}]
