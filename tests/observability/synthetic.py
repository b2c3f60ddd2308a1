"""Synthetic series for `promtool test rules`: a healthy cluster, and what goes wrong in it. One sample a minute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from generator.slos import SLOS

Series = dict[str, str]
"""Series to its values, in promtool's notation."""

SPEED: Final = 1_000_000
"""Requests a minute: enough for a share of a hundred thousandth."""

GROUPS: Final = 100

FAILED_MOVES: Final = (
    "kafka_server_replicaalterlogdirsmanager_failedpartitionscount"
    '{cluster="c",job="storage",instance="storage-1"}'
)
FAILED_FOLLOWERS: Final = 'kafka_server_replicafetchermanager_failedpartitionscount{instance="storage-1"}'

LATE_TRANSACTIONS: Final = (
    "kafka_server_replicamanager_partitionswithlatetransactionscount"
    '{cluster="c",job="storage",instance="storage-1"}'
)
OLDEST_UNMARKED: Final = (
    'barnabas_coordinator_oldest_unmarked_transaction_seconds{cluster="c",instance="coordinator-1"}'
)


def steps(*parts: tuple[float, int]) -> str:
    """A counter that grows by so much a minute for so many minutes, part by part."""
    level, text = 0.0, []
    for growth, minutes in parts:
        text.append(f"{level + growth:g}+{growth:g}x{minutes - 1}")
        level += growth * minutes
    return " ".join(["0", *text])


def constant(value: float, minutes: int) -> str:
    return f"{value:g}x{minutes}"


def burning(parts: list[tuple[float, int]]) -> Series:
    """The indicators of all objectives while they burn their budgets so many times too fast, for so many minutes."""
    total = steps(*((SPEED, minutes) for _, minutes in parts))

    def bad(budget: float, of: float = SPEED) -> str:
        return steps(*((of * budget * speed, minutes) for speed, minutes in parts))

    def good(budget: float) -> str:
        return steps(*((SPEED * (1 - budget * speed), minutes) for speed, minutes in parts))

    budgets = {slo.name: slo.budget for slo in SLOS}
    series = {
        'barnabas_canary_attempts_total{cluster="c",operation="fetch"}': total,
        'barnabas_canary_failures_total{cluster="c",operation="fetch"}': bad(budgets["client_availability"]),
        'barnabas_canary_end_to_end_seconds_bucket{cluster="c",le="0.5"}': good(
            budgets["end_to_end_latency"]
        ),
        'barnabas_canary_acknowledged_records_total{cluster="c"}': total,
        'barnabas_canary_lost_records_total{cluster="c"}': bad(budgets["durability"]),
        'kafka_network_requestmetrics_totaltimems_count{cluster="c",request="Produce"}': total,
        'kafka_network_requestmetrics_totaltimems_bucket{cluster="c",request="Produce",le="100.0"}': good(
            budgets["produce_latency"]
        ),
    }
    for request, name in (("Produce", "produce_availability"), ("Fetch", "fetch_availability")):
        labels = f'{{cluster="c",request="{request}"}}'
        series[f"kafka_network_requestmetrics_requests_total{labels}"] = total
        series[f"barnabas_gateway_failed_requests_total{labels}"] = bad(budgets[name])
    for group in range(GROUPS):
        lags = []
        for speed, minutes in parts:
            late = group < round(GROUPS * budgets["freshness"] * speed)
            lags.append(f"{900 if late else 1}x{minutes - 1}")
        name = f'barnabas_consumergroup_lag_seconds{{cluster="c",consumergroup="{group}",topic="t",partition="0"}}'
        series[name] = " ".join(lags)
    return series


def healthy(minutes: int) -> Series:
    """Everything that alerts for causes look at, in a cluster where all is well."""
    one, zero, growing = constant(1, minutes), constant(0, minutes), steps((60, minutes))
    series = {
        'kafka_controller_kafkacontroller_activecontrollercount{cluster="c",instance="controller-1"}': one,
        'kafka_controller_kafkacontroller_activecontrollercount{cluster="c",instance="controller-2"}': zero,
        'kafka_controller_kafkacontroller_offlinepartitionscount{cluster="c"}': zero,
        'kafka_controller_kafkacontroller_fencedbrokercount{cluster="c"}': zero,
        'kafka_controller_controllerstats_uncleanleaderelections_total{cluster="c"}': zero,
        'barnabas_controller_underreplicated_partitions{cluster="c"}': zero,
        'kafka_server_replicamanager_underminisrpartitioncount{cluster="c"}': zero,
        'kafka_server_replicamanager_isrshrinks_total{cluster="c"}': zero,
        FAILED_FOLLOWERS: zero,
        'barnabas_controller_replicas_being_added{cluster="c"}': zero,
        'kafka_server_brokertopicmetrics_reassignmentbytesin_total{cluster="c"}': zero,
        'barnabas_controller_reassigning_partitions{cluster="c"}': zero,
        'barnabas_controller_throttles{cluster="c",setting="leader.replication.throttled.rate"}': zero,
        'barnabas_controller_replicas_on_cordoned_nodes{cluster="c"}': zero,
        'barnabas_storage_moving_replicas{cluster="c",job="storage",instance="storage-1"}': zero,
        'barnabas_storage_moved_bytes_total{cluster="c",job="storage",instance="storage-1"}': zero,
        FAILED_MOVES: zero,
        'kafka_server_replicamanager_offlinereplicacount{cluster="c",job="storage",instance="storage-1"}': zero,
        'kafka_log_logcleanermanager_uncleanable_partitions_count{instance="storage-1"}': zero,
        'kafka_log_logcleanermanager_time_since_last_run_ms{instance="storage-1"}': constant(9000, minutes),
        'barnabas_storage_log_directory_free_bytes{instance="storage-1",log_directory="/d"}': constant(
            50, minutes
        ),
        'barnabas_storage_log_directory_size_bytes{instance="storage-1",log_directory="/d"}': constant(
            100, minutes
        ),
        'barnabas_coordinator_loading_partitions{cluster="c",instance="coordinator-1"}': zero,
        'barnabas_coordinator_read_only_partitions{cluster="c",instance="coordinator-1"}': zero,
        'barnabas_coordinator_transactions_loading_partitions{cluster="c",instance="coordinator-1"}': zero,
        'barnabas_coordinator_transactions_read_only_partitions{cluster="c",instance="coordinator-1"}': zero,
        LATE_TRANSACTIONS: zero,
        OLDEST_UNMARKED: one,
        'barnabas_consumergroup_lag_seconds{cluster="c",consumergroup="g",topic="t"}': one,
        'barnabas_canary_attempts_total{cluster="c"}': growing,
        'barnabas_canary_lost_records_total{cluster="c"}': zero,
        'barnabas_canary_duplicate_records_total{cluster="c"}': zero,
        'barnabas_canary_out_of_order_records_total{cluster="c"}': zero,
    }
    for job in ("gateway", "storage", "controller", "coordinator"):
        labels = f'cluster="c",job="{job}",instance="{job}-1"'
        series[f"up{{{labels}}}"] = one
        series[f"process_start_time_seconds{{{labels}}}"] = one
        series[f'barnabas_event_loop_lag_seconds_bucket{{{labels},le="0.1"}}'] = growing
        series[f'barnabas_event_loop_lag_seconds_bucket{{{labels},le="1.0"}}'] = growing
        series[f'barnabas_event_loop_lag_seconds_bucket{{{labels},le="+Inf"}}'] = growing
    series['up{cluster="c",job="gateway",instance="gateway-2"}'] = one
    series[
        'barnabas_gateway_reading_paused_seconds_total{cluster="c",job="gateway",instance="gateway-1"}'
    ] = zero
    return series


def case(series: Mapping[str, str], expected: Mapping[int, list[dict[str, str]]], by: str) -> dict[str, Any]:
    """One test of promtool: after so many minutes exactly these alerts fire, told apart by the labels `by`."""
    query = f'count by ({by}) (ALERTS{{alertstate="firing"}}) * 0 + 1'
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": query,
                "eval_time": f"{minute}m",
                "exp_samples": [{"labels": _labels(labels), "value": 1} for labels in alerts],
            }
            for minute, alerts in expected.items()
        ],
    }


def _labels(labels: Mapping[str, str]) -> str:
    inner = ", ".join(f'{name}="{value}"' for name, value in labels.items())
    return f"{{{inner}}}"
