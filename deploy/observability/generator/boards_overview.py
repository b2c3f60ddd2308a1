"""The dashboards that one looks at first: overview and objectives."""

from __future__ import annotations

from typing import Final

from generator.panels import ANY_IS_BAD, GREEN, ORANGE, RED, Dashboard, Query, Row, graph, number
from generator.promql import C, quantile, rate, total
from generator.slos import BURNS, SLOS

_CONTROLLER: Final = "kafka_controller_kafkacontroller_"
_TOPICS: Final = "kafka_server_brokertopicmetrics_"
_SHARE: Final = ((None, RED), (0.25, ORANGE), (0.5, GREEN))

_STATE = Row(
    "State",
    (
        number(
            "Active controllers",
            "Exactly one decides about metadata.",
            "none",
            total(f"{_CONTROLLER}activecontrollercount"),
            thresholds=((None, RED), (1, GREEN), (2, ORANGE)),
        ),
        number(
            "Storage nodes",
            "Nodes that the controller takes for alive.",
            "none",
            total(f"{_CONTROLLER}activebrokercount"),
            thresholds=((None, RED), (1, GREEN)),
        ),
        number(
            "Gateways",
            "Gateways that are registered.",
            "none",
            total("barnabas_controller_registered_gateways"),
            thresholds=((None, RED), (1, GREEN)),
        ),
        number(
            "Coordinators",
            "Coordinators that are registered.",
            "none",
            total("barnabas_controller_registered_coordinators"),
            thresholds=((None, RED), (1, GREEN)),
        ),
        number(
            "Offline partitions",
            "Partitions without a leader: they take and give nothing.",
            "none",
            total(f"{_CONTROLLER}offlinepartitionscount"),
            thresholds=ANY_IS_BAD,
        ),
        number(
            "Under-replicated",
            "Partitions that lack an in-sync replica.",
            "none",
            total("barnabas_controller_underreplicated_partitions"),
            thresholds=((None, GREEN), (1, ORANGE)),
        ),
    ),
)

_TRAFFIC = Row(
    "Traffic",
    (
        graph(
            "Records in",
            "Records appended, by topic.",
            "cps",
            Query(rate(f"{_TOPICS}messagesin_total", by="topic"), "{{topic}}"),
            stacked=True,
        ),
        graph(
            "Bytes in",
            "Bytes of record batches appended, by topic.",
            "Bps",
            Query(rate(f"{_TOPICS}bytesin_total", by="topic"), "{{topic}}"),
            stacked=True,
        ),
        graph(
            "Bytes out",
            "Bytes of record batches that clients read, by topic.",
            "Bps",
            Query(rate(f"{_TOPICS}bytesout_total", by="topic"), "{{topic}}"),
            stacked=True,
        ),
        graph(
            "Requests",
            "Requests answered by the gateways, by kind.",
            "reqps",
            Query(rate("kafka_network_requestmetrics_requests_total", by="request"), "{{request}}"),
            stacked=True,
        ),
        graph(
            "Failed requests",
            "Requests whose answer held an error of the cluster's making, by kind.",
            "reqps",
            Query(rate("barnabas_gateway_failed_requests_total", by="request"), "{{request}}"),
        ),
        graph(
            "Produce time",
            "From a request read to its answer on the way, over all gateways.",
            "ms",
            Query(
                quantile(0.5, "kafka_network_requestmetrics_totaltimems", 'request="Produce"', by="request"),
                "p50",
            ),
            Query(
                quantile(0.99, "kafka_network_requestmetrics_totaltimems", 'request="Produce"', by="request"),
                "p99",
            ),
            thresholds=((None, GREEN), (100, RED)),
        ),
    ),
)

_PROCESSES = Row(
    "Processes",
    (
        graph(
            "Processor",
            "Cores used; a process has one event loop and so at most one core for it.",
            "none",
            Query(rate("process_cpu_seconds_total", 'job!="etcd"', by="job, instance"), "{{instance}}"),
            thresholds=((None, GREEN), (0.8, ORANGE)),
        ),
        graph(
            "Memory",
            "Resident memory.",
            "bytes",
            Query(total("process_resident_memory_bytes", 'job!="etcd"', by="job, instance"), "{{instance}}"),
        ),
        graph(
            "Event loop lag (p99)",
            "How late timers fire: what everything in that process waits at least.",
            "s",
            Query(
                quantile(0.99, "barnabas_event_loop_lag_seconds", by="job, instance"),
                "{{instance}}",
            ),
            thresholds=((None, GREEN), (0.25, RED)),
        ),
        graph(
            "Garbage collection",
            "Share of the time that the collector stops a process.",
            "percentunit",
            Query(rate("barnabas_gc_pause_seconds_sum", by="job, instance"), "{{instance}}"),
        ),
        graph(
            "Restarts",
            "Starts of a process in the last half hour, beyond the first.",
            "none",
            Query(f"changes(process_start_time_seconds{{{C}}}[30m])", "{{instance}}"),
            thresholds=((None, GREEN), (3, RED)),
        ),
        graph(
            "Versions",
            "Processes by the version that they run.",
            "none",
            Query(f"count by (version) (barnabas_build_info{{{C}}})", "{{version}}"),
        ),
    ),
)

OVERVIEW = Dashboard(
    "overview",
    "Overview",
    "Whether the cluster is well, what it carries, and what its processes use.",
    (),
    (_STATE, _TRAFFIC, _PROCESSES),
)


def _objectives() -> tuple[Row, ...]:
    left = tuple(
        number(
            slo.title,
            f"{slo.description} Objective {slo.objective:.5g} over 30 days; shown is the share of the budget "
            "that is left.",
            "percentunit",
            f'min(slo:error_budget_remaining:ratio{{{C}, slo="{slo.name}"}})',
            thresholds=_SHARE,
            width=8 if number_ < 6 else 24,
            legend="budget left",
            decimals=2,
        )
        for number_, slo in enumerate(SLOS)
    )
    fast, slow = BURNS[0], BURNS[2]
    speeds = tuple(
        graph(
            f"Burn: {slo.title}",
            f"How many times faster than allowed the budget goes. {fast.factor:g} over {fast.long} pages, "
            f"{slow.factor:g} over {slow.long} is a ticket.",
            "none",
            *(
                Query(
                    f'max(slo:error_ratio:{window}{{{C}, slo="{slo.name}"}}) / {slo.budget:g}',
                    window,
                )
                for window in ("5m", "1h", "6h", "1d", "3d")
            ),
            thresholds=((None, GREEN), (slow.factor, ORANGE), (fast.factor, RED)),
        )
        for slo in SLOS
    )
    return Row("Budget that is left", left), Row("How fast it goes", speeds)


_CANARY = Row(
    "The canary",
    (
        graph(
            "Attempts",
            "Records to produce and to fetch through each gateway.",
            "cps",
            Query(
                rate("barnabas_canary_attempts_total", by="gateway, operation"), "{{operation}} {{gateway}}"
            ),
        ),
        graph(
            "Failures",
            "Of those, not done in time.",
            "cps",
            Query(
                rate("barnabas_canary_failures_total", by="gateway, operation"), "{{operation}} {{gateway}}"
            ),
        ),
        graph(
            "Produce time (p99)",
            "From a record's send to its acknowledgement.",
            "s",
            Query(quantile(0.99, "barnabas_canary_produce_seconds", by="gateway"), "{{gateway}}"),
        ),
        graph(
            "End to end (p99)",
            "From a record's send to its being read through the gateway.",
            "s",
            Query(quantile(0.99, "barnabas_canary_end_to_end_seconds", by="gateway"), "{{gateway}}"),
            thresholds=((None, GREEN), (0.5, RED)),
        ),
        graph(
            "Freshness",
            "Age of the newest record read through the gateway.",
            "s",
            Query(total("barnabas_canary_freshness_seconds", by="gateway"), "{{gateway}}"),
            thresholds=((None, GREEN), (10, RED)),
        ),
        graph(
            "Broken promises",
            "Records lost, unread so far, read twice, read out of order.",
            "none",
            Query(total("barnabas_canary_lost_records_total"), "lost"),
            Query(total("barnabas_canary_unread_records"), "unread"),
            Query(total("barnabas_canary_duplicate_records_total"), "twice"),
            Query(total("barnabas_canary_out_of_order_records_total"), "out of order"),
        ),
    ),
)

OBJECTIVES = Dashboard(
    "slo",
    "SLOs",
    "What was promised, how much of the error budget is left, and how fast it goes. See docs/slo.md.",
    (),
    (*_objectives(), _CANARY),
)
