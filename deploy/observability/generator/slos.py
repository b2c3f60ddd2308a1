"""The objectives: what is counted, what of it is bad, and how much of that is too much. docs/slo.md explains each.

An indicator is two queries that count over five minutes, `errors` out of `total`, both by `cluster`; everything else
follows from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PRODUCE_MS: Final = 100
"""Promised time of a produce at the gateway; a bucket's bound."""

END_TO_END_SECONDS: Final = 0.5
"""Promised time from a canary's send to its being read; a bucket's bound."""

LAG_SECONDS: Final = 300
"""How old the oldest record that a group has not consumed may be."""


@dataclass(frozen=True)
class Slo:
    """One objective. `errors` and `total` are PromQL; `objective` is the share that must be good."""

    name: str
    title: str
    objective: float
    errors: str
    total: str
    description: str
    runbook: str

    @property
    def budget(self) -> float:
        """The share that may be bad."""
        return round(1 - self.objective, 10)

    @property
    def alert(self) -> str:
        """The alerts' name: produce_availability -> ProduceAvailabilityBurning."""
        return "".join(word.capitalize() for word in self.name.split("_")) + "Burning"


def _requests(metric: str, request: str) -> str:
    return f'sum by (cluster) (rate({metric}{{request="{request}"}}[5m]))'


_REQUESTS: Final = "kafka_network_requestmetrics_requests_total"
_FAILED: Final = "barnabas_gateway_failed_requests_total"
_PRODUCE_TIMES: Final = "kafka_network_requestmetrics_totaltimems"
_LAG: Final = "max by (cluster, consumergroup, topic) (barnabas_consumergroup_lag_seconds)"

SLOS: Final = (
    Slo(
        name="produce_availability",
        title="Produce requests that succeed",
        objective=0.999,
        errors=_requests(_FAILED, "Produce"),
        total=_requests(_REQUESTS, "Produce"),
        description="Produce requests whose answer held no error of the cluster's making, as the gateways count them.",
        runbook="produce-availability",
    ),
    Slo(
        name="fetch_availability",
        title="Fetch requests that succeed",
        objective=0.999,
        errors=_requests(_FAILED, "Fetch"),
        total=_requests(_REQUESTS, "Fetch"),
        description="Fetch requests whose answer held no error of the cluster's making, as the gateways count them.",
        runbook="fetch-availability",
    ),
    Slo(
        name="client_availability",
        title="Canary records produced and fetched in time",
        objective=0.999,
        errors="sum by (cluster) (rate(barnabas_canary_failures_total[5m]))",
        total="sum by (cluster) (rate(barnabas_canary_attempts_total[5m]))",
        description="What a client sees: records that the canary sends and reads through every gateway, in time. It "
        "also counts what never reached a gateway.",
        runbook="client-availability",
    ),
    Slo(
        name="produce_latency",
        title=f"Produce requests answered within {PRODUCE_MS} ms",
        objective=0.99,
        errors=f"{_requests(f'{_PRODUCE_TIMES}_count', 'Produce')}\n  - sum by (cluster) (rate("
        f'{_PRODUCE_TIMES}_bucket{{request="Produce",le=~"{PRODUCE_MS}([.]0)?"}}[5m]))',
        total=_requests(f"{_PRODUCE_TIMES}_count", "Produce"),
        description="From the last byte of a produce request read by a gateway to its answer on the way out.",
        runbook="produce-latency",
    ),
    Slo(
        name="end_to_end_latency",
        title=f"Canary records read within {END_TO_END_SECONDS} s of being sent",
        objective=0.99,
        errors='sum by (cluster) (rate(barnabas_canary_attempts_total{operation="fetch"}[5m]))\n  - sum by (cluster) '
        f'(rate(barnabas_canary_end_to_end_seconds_bucket{{le="{END_TO_END_SECONDS}"}}[5m]))',
        total='sum by (cluster) (rate(barnabas_canary_attempts_total{operation="fetch"}[5m]))',
        description="From a record's send by the canary to its being read through each gateway.",
        runbook="end-to-end-latency",
    ),
    Slo(
        name="durability",
        title="Acknowledged canary records that can be read",
        objective=0.99999,
        errors="sum by (cluster) (rate(barnabas_canary_lost_records_total[5m]))",
        total="sum by (cluster) (rate(barnabas_canary_acknowledged_records_total[5m]))",
        description="A record that was acknowledged and that no gateway gives back although its partition answers.",
        runbook="durability",
    ),
    Slo(
        name="freshness",
        title=f"Groups that are less than {LAG_SECONDS} s behind",
        objective=0.99,
        errors=f"sum by (cluster) ({_LAG} > bool {LAG_SECONDS})",
        total=f"count by (cluster) ({_LAG})",
        description="Groups and topics whose oldest record that is not consumed yet is younger than that.",
        runbook="freshness",
    ),
)


@dataclass(frozen=True)
class Burn:
    """A pair of windows and the speed, in budgets per 30 days, that is too fast over both of them."""

    long: str
    short: str
    factor: float
    severity: str
    spent: str
    """How much of the month's budget is gone when it fires."""


BURNS: Final = (
    Burn("1h", "5m", 14.4, "page", "2%"),
    Burn("6h", "30m", 6, "page", "5%"),
    Burn("1d", "2h", 3, "ticket", "10%"),
    Burn("3d", "6h", 1, "ticket", "10%"),
)
"""Google's SRE workbook, chapter 5, table 5-8: two windows each, so that an alert ends soon after its cause."""

WINDOWS: Final = ("5m", "30m", "1h", "2h", "6h", "1d", "3d", "30d")
