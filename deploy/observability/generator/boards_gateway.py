"""The gateway's dashboard: where the time of requests goes, connections, backpressure."""

from __future__ import annotations

from typing import Final

from generator.panels import GREEN, ORANGE, RED, Dashboard, Query, Row, Variable, graph
from generator.promql import quantile, rate, total

_REQUESTS: Final = "kafka_network_requestmetrics_"
_I: Final = 'instance=~"$instance"'
_R: Final = 'request=~"$request"'
_PARTS: Final = (
    ("requestqueuetimems", "queue"),
    ("localtimems", "local"),
    ("remotetimems", "remote"),
    ("throttletimems", "throttle"),
    ("responsequeuetimems", "response queue"),
    ("responsesendtimems", "send"),
)


def _part(metric: str) -> str:
    metric = _REQUESTS + metric
    spent = rate(f"{metric}_sum", _I, _R)
    return f"{spent} / ({rate(f'{metric}_count', _I, _R)} > 0) or {spent} * 0"


_TIMES = Row(
    "Requests",
    (
        graph(
            "Requests",
            "Requests answered, by kind.",
            "reqps",
            Query(rate(f"{_REQUESTS}requests_total", _I, _R, by="request"), "{{request}}"),
            stacked=True,
        ),
        graph(
            "Total time (p99)",
            "From the last byte read to the answer on its way; with the wait of fetches for data and of joins.",
            "ms",
            Query(quantile(0.99, f"{_REQUESTS}totaltimems", _I, _R, by="request"), "{{request}}"),
        ),
        graph(
            "Where the time goes",
            "Mean time of the requests chosen above, in its parts: waiting to be handled, the gateway's own work, "
            "storage nodes, coordinators and controllers, quotas, waiting for earlier answers, sending.",
            "ms",
            *(Query(_part(metric), legend) for metric, legend in _PARTS),
            stacked=True,
        ),
        graph(
            "Error codes in answers",
            "One for each partition, topic or group that has one; many are a client's own doing.",
            "cps",
            Query(rate(f"{_REQUESTS}errors_total", _I, by="request, error"), "{{request}} {{error}}"),
        ),
        graph(
            "Failed requests",
            "Requests with an error of the cluster's making: what availability is counted from.",
            "reqps",
            Query(rate("barnabas_gateway_failed_requests_total", _I, by="request"), "{{request}}"),
        ),
        graph(
            "Bytes of requests",
            "What clients send, by kind.",
            "Bps",
            Query(rate(f"{_REQUESTS}requestbytes_total", _I, _R, by="request"), "{{request}}"),
            stacked=True,
        ),
    ),
)

_CONNECTIONS = Row(
    "Connections and backpressure",
    (
        graph(
            "Connections",
            "Open connections.",
            "none",
            Query(
                total("kafka_server_socketservermetrics_connection_count", _I, by="instance"), "{{instance}}"
            ),
        ),
        graph(
            "Connections opened and closed",
            "High rates are clients that connect again and again.",
            "cps",
            Query(rate("kafka_server_socketservermetrics_connection_creation_total", _I), "opened"),
            Query(rate("kafka_server_socketservermetrics_connection_close_total", _I), "closed"),
        ),
        graph(
            "Unanswered requests",
            "Bytes of requests that are not answered yet, and the bound above which no socket is read.",
            "bytes",
            Query(total("barnabas_gateway_unanswered_request_bytes", _I, by="instance"), "{{instance}}"),
            Query(
                total("barnabas_gateway_unanswered_request_bytes_max", _I, by="instance"),
                "bound {{instance}}",
            ),
        ),
        graph(
            "Connections not read",
            "Because of what they, or all together, have unanswered.",
            "none",
            Query(total("barnabas_gateway_paused_connections", _I, by="instance"), "{{instance}}"),
            thresholds=((None, GREEN), (1, ORANGE)),
        ),
        graph(
            "Time held back",
            "Connections held back, on average: producers that are not read, consumers that do not read.",
            "none",
            Query(rate("barnabas_gateway_reading_paused_seconds_total", _I), "producers"),
            Query(rate("barnabas_gateway_writing_paused_seconds_total", _I), "consumers"),
            thresholds=((None, GREEN), (0.5, RED)),
        ),
        graph(
            "Pauses",
            "How often reading or writing was paused.",
            "cps",
            Query(rate("barnabas_gateway_reading_pauses_total", _I), "reading"),
            Query(rate("barnabas_gateway_writing_pauses_total", _I), "writing"),
        ),
    ),
)

_STREAMS = Row(
    "Streams to storage nodes",
    (
        graph(
            "Items in a message",
            "How well coalescing works: requests in one message, on average. 1 under load is costly.",
            "none",
            Query(
                f"{rate('barnabas_stream_message_items_sum', _I, by='stream, direction')} / "
                f"({rate('barnabas_stream_message_items_count', _I, by='stream, direction')} > 0) or "
                f"{rate('barnabas_stream_message_items_sum', _I, by='stream, direction')} * 0",
                "{{stream}} {{direction}}",
            ),
        ),
        graph(
            "Bytes",
            "Bytes of messages.",
            "Bps",
            Query(
                rate("barnabas_stream_bytes_total", _I, by="stream, direction"), "{{stream}} {{direction}}"
            ),
        ),
        graph(
            "Requests without a result",
            "Waiting for storage nodes; fetches also for data.",
            "none",
            Query(total("barnabas_stream_waiting_requests", _I, by="stream"), "{{stream}}"),
        ),
        graph(
            "Bytes not written yet",
            "Above 0 for long: storage cannot keep up.",
            "bytes",
            Query(total("barnabas_stream_queued_bytes", _I, by="stream"), "{{stream}}"),
        ),
        graph(
            "Waiting to write",
            "Share of the time that writing a message took: the peer's flow control.",
            "percentunit",
            Query(rate("barnabas_stream_write_wait_seconds_total", _I, by="stream"), "{{stream}}"),
        ),
        graph(
            "Breaks",
            "Streams that broke while connected.",
            "cps",
            Query(rate("barnabas_stream_breaks_total", _I, by="stream"), "{{stream}}"),
            thresholds=((None, GREEN), (0.01, RED)),
        ),
    ),
)

_TELEMETRY = Row(
    "Clients' own metrics (KIP-714)",
    (
        graph(
            "Client instances",
            "Known instances; none without a collector.",
            "none",
            Query(total("kafka_server_client_metrics_instance_count", _I, by="instance"), "{{instance}}"),
            width=12,
        ),
        graph(
            "Pushes",
            "Handed over for export, not readable, for a subscription that the client does not have, too early.",
            "cps",
            Query(rate("kafka_server_client_metrics_plugin_export_count_total", _I), "exported"),
            Query(rate("kafka_server_client_metrics_plugin_error_count_total", _I), "not readable"),
            Query(
                rate("kafka_server_client_metrics_unknown_subscription_request_count_total", _I),
                "unknown subscription",
            ),
            Query(rate("kafka_server_client_metrics_throttle_count_total", _I), "too early"),
            width=12,
        ),
    ),
)

GATEWAY = Dashboard(
    "gateway",
    "Gateway",
    "Requests and where their time goes, connections, backpressure, streams to storage nodes.",
    (
        Variable("instance", "kafka_server_socketservermetrics_connection_count", "instance", "Gateway"),
        Variable("request", f"{_REQUESTS}requests_total", "request", "Request"),
    ),
    (_TIMES, _CONNECTIONS, _STREAMS, _TELEMETRY),
)
