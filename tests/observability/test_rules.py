"""Rules on synthetic series: each alert fires when it must and stays silent when it must not."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any, Final

import generate
import pytest
import yaml
from generator.cause_rules import CAUSES
from generator.slos import BURNS, SLOS
from running_cluster import require_program
from synthetic import (
    FAILED_FOLLOWERS,
    FAILED_MOVES,
    LATE_TRANSACTIONS,
    OLDEST_UNMARKED,
    burning,
    case,
    constant,
    healthy,
    steps,
)

pytestmark = pytest.mark.integration

FOLDER: Final = Path(generate.__file__).parent
ROOT: Final = FOLDER.parents[1]
HOUR: Final = 60


def promtool(*arguments: str | Path) -> None:
    command = [require_program("promtool"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]


def check_cases(rules: str, cases: list[dict[str, Any]], folder: Path) -> None:
    document = {"rule_files": [str(FOLDER / rules)], "evaluation_interval": "1m", "tests": cases}
    file = folder / "test.yaml"
    file.write_text(yaml.safe_dump(document, width=10**9))
    promtool("test", "rules", file)


def test_rules_are_what_the_generator_writes() -> None:
    for name, text in generate.rule_files(generate.RUNBOOKS).items():
        assert (FOLDER / name).read_text() == text, (
            f"{name} is stale: run python deploy/observability/generate.py"
        )


def test_promtool_takes_rules_and_configuration() -> None:
    promtool("check", "rules", *sorted((FOLDER / "rules").glob("*.yaml")))
    promtool("check", "config", *sorted(FOLDER.glob("prometheus*.yaml")))


def alerts() -> list[dict[str, Any]]:
    files = sorted((FOLDER / "rules").glob("*.yaml"))
    groups = [group for file in files for group in yaml.safe_load(file.read_text())["groups"]]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


def test_every_alert_has_a_summary_a_severity_and_a_runbook_that_is_there() -> None:
    for alert in alerts():
        assert alert["labels"]["severity"] in ("page", "ticket")
        assert alert["annotations"]["summary"]
        runbook = ROOT / alert["annotations"]["runbook_url"]
        assert runbook.is_file(), f"{alert['alert']} points to {runbook}"
        assert alert["alert"] in runbook.read_text(), f"{runbook} does not name {alert['alert']}"
    pointed_at = {Path(alert["annotations"]["runbook_url"]).name for alert in alerts()}
    assert pointed_at == {path.name for path in (ROOT / "docs" / "runbooks").glob("*.md")} - {"README.md"}


def test_the_runbooks_address_is_a_setting() -> None:
    text = generate.rule_files("https://wiki.example/barnabas")["rules/causes.yaml"]
    assert "runbook_url: https://wiki.example/barnabas/no-gateway.md" in text
    assert generate.RUNBOOKS not in text


# --- objectives


def burns(*windows: str) -> list[dict[str, str]]:
    """All objectives' alerts of these windows."""
    return [{"slo": slo.name, "window": window} for slo in SLOS for window in windows]


@pytest.mark.parametrize(
    ("speed", "windows"),
    [
        (0.5, ()),
        (1.5, ("3d",)),
        (4.0, ("1d", "3d")),
        (8.0, ("6h", "1d", "3d")),
        (20.0, ("1h", "6h", "1d", "3d")),
    ],
)
def test_a_steady_burn_alerts_in_the_windows_that_it_is_too_fast_for(
    speed: float, windows: tuple[str, ...], tmp_path: Path
) -> None:
    minutes = 2 * HOUR
    expected = {minutes - 1: burns(*windows)}
    check_cases("rules/slo.yaml", [case(burning([(speed, minutes)]), expected, "slo, window")], tmp_path)


def test_a_short_spike_is_silent_and_a_long_one_ends_soon_after_its_cause(tmp_path: Path) -> None:
    calm = 10 * HOUR
    series = burning([(0.0, calm), (20.0, 65), (0.0, 30)])
    expected = {
        calm + 10: [],
        # The 3d window knows but eleven hours here: that much of them was bad.
        calm + 64: burns("1h", "3d"),
        calm + 65 + 12: burns("3d"),
    }
    check_cases("rules/slo.yaml", [case(series, expected, "slo, window")], tmp_path)


def test_nothing_asked_for_is_nothing_failed(tmp_path: Path) -> None:
    asleep = {name: constant(0, 60) for name in burning([(0.0, 60)]) if "lag_seconds" not in name}
    tests = case(asleep, {59: []}, "slo, window")
    tests["promql_expr_test"].append(
        {
            "expr": 'max by (slo) (slo:error_ratio:30d{slo="durability"})',
            "eval_time": "59m",
            "exp_samples": [{"labels": '{slo="durability"}', "value": 0}],
        }
    )
    check_cases("rules/slo.yaml", [tests], tmp_path)


def test_factors_are_those_of_the_workbook() -> None:
    assert [(burn.long, burn.short, burn.factor) for burn in BURNS] == [
        ("1h", "5m", 14.4),
        ("6h", "30m", 6),
        ("1d", "2h", 3),
        ("3d", "6h", 1),
    ]


# --- causes

CALM: Final = 30
"""Minutes of health before the harm."""

AFTER: Final = 40
"""Minutes of harm."""


def then(before: float, after: float) -> str:
    return f"{constant(before, CALM - 1)} {constant(after, AFTER)}"


def jump() -> str:
    """A counter that counts one."""
    return then(0, 1)


C: Final = 'cluster="c"'
THROTTLES: Final = f'barnabas_controller_throttles{{{C},setting="leader.replication.throttled.rate"}}'
ON_CORDONED_NODES: Final = f"barnabas_controller_replicas_on_cordoned_nodes{{{C}}}"
HARM: Final[dict[str, dict[str, str]]] = {
    "NoActiveController": {
        f'kafka_controller_kafkacontroller_activecontrollercount{{{C},instance="controller-1"}}': then(1, 0)
    },
    "SeveralActiveControllers": {
        f'kafka_controller_kafkacontroller_activecontrollercount{{{C},instance="controller-2"}}': then(0, 1)
    },
    "OfflinePartitions": {f"kafka_controller_kafkacontroller_offlinepartitionscount{{{C}}}": then(0, 3)},
    "UnderMinInSyncReplicas": {f"kafka_server_replicamanager_underminisrpartitioncount{{{C}}}": then(0, 2)},
    "UnderReplicatedPartitions": {f"barnabas_controller_underreplicated_partitions{{{C}}}": then(0, 2)},
    "InSyncReplicasChurn": {
        f"kafka_server_replicamanager_isrshrinks_total{{{C}}}": steps((0, CALM), (60, AFTER))
    },
    "FollowersFailed": {FAILED_FOLLOWERS: then(0, 2)},
    "ReassignmentStuck": {f"barnabas_controller_replicas_being_added{{{C}}}": then(0, 2)},
    "ThrottlesLeft": {THROTTLES: then(0, 3)},
    "DrainStopped": {ON_CORDONED_NODES: then(0, 5)},
    "MoveStuck": {f'barnabas_storage_moving_replicas{{{C},job="storage",instance="storage-1"}}': then(0, 2)},
    "MoveFailed": {FAILED_MOVES: then(0, 1)},
    "UncleanLeaderElection": {
        f"kafka_controller_controllerstats_uncleanleaderelections_total{{{C}}}": jump()
    },
    "OfflineReplicas": {
        f'kafka_server_replicamanager_offlinereplicacount{{{C},job="storage",instance="storage-1"}}': then(
            0, 1
        )
    },
    "StorageNodeAway": {f"kafka_controller_kafkacontroller_fencedbrokercount{{{C}}}": then(0, 1)},
    "NoGateway": {f'up{{{C},job="gateway",instance="gateway-{n}"}}': then(1, 0) for n in (1, 2)},
    "GatewayDown": {f'up{{{C},job="gateway",instance="gateway-2"}}': then(1, 0)},
    "ServiceDown": {f'up{{{C},job="coordinator",instance="coordinator-1"}}': then(1, 0)},
    "RestartLoop": {
        f'process_start_time_seconds{{{C},job="gateway",instance="gateway-1"}}': (
            f"{constant(1, CALM - 1)} 2x5 3x5 4x{AFTER - 12}"
        )
    },
    "EventLoopLag": {
        f'barnabas_event_loop_lag_seconds_bucket{{{C},job="gateway",instance="gateway-1",le="0.1"}}': (
            steps((60, CALM), (0.001, AFTER))
        )
    },
    "ProducersHeldBack": {
        f'barnabas_gateway_reading_paused_seconds_total{{{C},job="gateway",instance="gateway-1"}}': (
            steps((0, CALM), (60, AFTER))
        )
    },
    "DiskNearlyFull": {
        'barnabas_storage_log_directory_free_bytes{instance="storage-1",log_directory="/d"}': then(50, 5)
    },
    "LogCleanerStuck": {
        'kafka_log_logcleanermanager_uncleanable_partitions_count{instance="storage-1"}': then(0, 1)
    },
    "CoordinatorLoading": {
        f'barnabas_coordinator_loading_partitions{{{C},instance="coordinator-1"}}': then(0, 4)
    },
    "CoordinatorReadOnly": {
        f'barnabas_coordinator_read_only_partitions{{{C},instance="coordinator-1"}}': then(0, 4)
    },
    "TransactionHangs": {LATE_TRANSACTIONS: then(0, 2)},
    "MarkersDoNotLand": {OLDEST_UNMARKED: then(1, 90)},
    "GroupFarBehind": {
        f'barnabas_consumergroup_lag_seconds{{{C},consumergroup="g",topic="t"}}': then(1, 2000)
    },
    "CanaryAbsent": {f"barnabas_canary_attempts_total{{{C}}}": f"{steps((60, CALM))} stale"},
    "CanaryRecordLost": {f"barnabas_canary_lost_records_total{{{C}}}": jump()},
    "CanaryRecordsOutOfOrder": {f"barnabas_canary_out_of_order_records_total{{{C}}}": jump()},
}
"""For each cause, the series of a healthy cluster that change after CALM minutes."""

ALONGSIDE: Final = {"NoGateway": ["GatewayDown"]}
"""Alerts that rightly fire with another."""


def test_every_cause_is_tried() -> None:
    assert set(HARM) == {cause.name for cause in CAUSES}
    known = healthy(1)
    for series in HARM.values():
        assert set(series) <= set(known), "harm is done to a series that a healthy cluster has"


def test_causes_alert_when_they_last_and_not_before(tmp_path: Path) -> None:
    cases = [case(healthy(CALM + AFTER), {CALM: [], CALM + AFTER - 1: []}, "alertname")]
    for cause in CAUSES:
        lasting = int(re.sub("m$", "", cause.lasting))
        series = healthy(CALM + AFTER) | HARM[cause.name]
        firing = [{"alertname": name} for name in sorted([cause.name, *ALONGSIDE.get(cause.name, [])])]
        # Rates and changes need some minutes of harm to be seen; five more than the alert's own patience.
        after = CALM + lasting + (16 if cause.name == "RestartLoop" else 8)
        expected: dict[int, list[dict[str, str]]] = {CALM - 1: [], after: firing}
        if lasting > 0:
            expected[CALM + lasting - 1] = []
        cases.append(case(series, dict(sorted(expected.items())), "alertname"))
    check_cases("rules/causes.yaml", cases, tmp_path)


@pytest.mark.parametrize(
    ("state", "alert"), [("loading", "CoordinatorLoading"), ("read_only", "CoordinatorReadOnly")]
)
def test_partitions_of_transactions_are_looked_at_too(state: str, alert: str, tmp_path: Path) -> None:
    name = f'barnabas_coordinator_transactions_{state}_partitions{{{C},instance="coordinator-1"}}'
    series = healthy(CALM + AFTER)
    assert name in series
    expected = {CALM - 1: [], CALM + 10: [{"alertname": alert}]}
    check_cases("rules/causes.yaml", [case(series | {name: then(0, 4)}, expected, "alertname")], tmp_path)


@pytest.mark.parametrize("series", [THROTTLES, ON_CORDONED_NODES])
def test_what_a_reassignment_needs_is_no_alert_while_it_runs(series: str, tmp_path: Path) -> None:
    busy = {series: then(0, 3), f"barnabas_controller_reassigning_partitions{{{C}}}": then(0, 1)}
    after = {CALM + AFTER - 1: []}
    check_cases("rules/causes.yaml", [case(healthy(CALM + AFTER) | busy, after, "alertname")], tmp_path)


def of_brokers(series: dict[str, str]) -> dict[str, str]:
    """The same of a cluster whose gateways are brokers, and storage nodes too."""
    found = {}
    for name, values in series.items():
        if not name.startswith(("up{", "process_")) or 'job="storage"' not in name:  # once a process
            name = name.replace('job="storage"', 'job="broker"').replace('"storage-', '"broker-')
            found[name.replace('job="gateway"', 'job="broker"').replace('"gateway-', '"broker-')] = values
    return found


@pytest.mark.parametrize(
    ("away", "alarms"),
    [((), []), ((2,), ["GatewayDown", "ServiceDown"]), ((1, 2), ["GatewayDown", "NoGateway", "ServiceDown"])],
)
def test_a_broker_that_is_away_is_a_gateway_and_a_storage_node_that_are(
    away: tuple[int, ...], alarms: list[str], tmp_path: Path
) -> None:
    series = of_brokers(healthy(CALM + AFTER))
    for number in away:
        name = f'up{{{C},job="broker",instance="broker-{number}"}}'
        assert name in series
        series[name] = then(1, 0)
    firing = [{"alertname": name} for name in alarms]
    check_cases("rules/causes.yaml", [case(series, {CALM - 1: [], CALM + 5: firing}, "alertname")], tmp_path)


def test_a_broker_that_starts_again_and_again_is_noticed(tmp_path: Path) -> None:
    series = of_brokers(healthy(CALM + AFTER) | HARM["RestartLoop"])
    expected = {CALM - 1: [], CALM + 16: [{"alertname": "RestartLoop"}]}
    check_cases("rules/causes.yaml", [case(series, expected, "alertname")], tmp_path)
