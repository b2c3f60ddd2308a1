"""`barnabas cluster features|quorum|unregister`: kafka-features, kafka-metadata-quorum, kafka-cluster unregister."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from barnabas.cli.commands import flags
from barnabas.cli.refusal import usage
from barnabas.cli.text.output import Column, OutputFormat, say, show_rows
from barnabas.kernel.kafka_values import SAFE_DOWNGRADE, UNSAFE_DOWNGRADE, UPGRADE

if TYPE_CHECKING:
    from barnabas.cli.kafka.connection import Connection

FEATURE_COLUMNS: Final = (
    Column("feature", "FEATURE", "cyan"),
    Column("supportedMin", "SUPPORTED-MIN", is_number=True),
    Column("supportedMax", "SUPPORTED-MAX", is_number=True),
    Column("finalized", "FINALIZED", "green", is_number=True),
    Column("epoch", "EPOCH", is_number=True),
)
QUORUM_COLUMNS: Final = (
    Column("node", "NODE", "cyan", is_number=True),
    Column("status", "STATUS"),
    Column("logEndOffset", "LOG-END-OFFSET", is_number=True),
    Column("lag", "LAG", is_number=True),
    Column("directoryId", "DIRECTORY-ID"),
    Column("lastFetchTimestamp", "LAST-FETCH", is_number=True),
    Column("lastCaughtUpTimestamp", "LAST-CAUGHT-UP", is_number=True),
)
STATUS_COLUMNS: Final = (Column("name", "PROPERTY", "cyan"), Column("value", "VALUE"))

FEATURE_ACTIONS: Final = ("describe", "upgrade", "downgrade", "disable")

FeatureActionFlag = Annotated[str, typer.Argument(help=f"{', '.join(FEATURE_ACTIONS)}.", show_default=False)]
FeatureFlag = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=LEVEL", help="What to change; repeatable. To disable: its name."),
]
MetadataFlag = Annotated[str, typer.Option("--metadata", hidden=True, help="Refused: use --feature.")]
ReleaseVersionFlag = Annotated[
    str, typer.Option("--release-version", hidden=True, help="Refused: use --feature.")
]


def features(
    action: FeatureActionFlag = "describe",
    feature: FeatureFlag = None,
    metadata: MetadataFlag = "",
    release_version: ReleaseVersionFlag = "",
    unsafe: Annotated[bool, typer.Option("--unsafe", help="Go down though metadata may be lost.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Let the cluster check, change nothing.")
    ] = False,
    output: flags.Output = OutputFormat.table,
    bootstrap_server: flags.BootstrapServer = "",
    bootstrap_controller: flags.BootstrapController = "",
    command_config: flags.ClusterConfig = None,
    command_property: flags.CommandProperty = None,
) -> None:
    """Supported and finalized features, and changing them (kafka-features)."""
    flags.refuse_controller(bootstrap_controller)
    if action not in FEATURE_ACTIONS:
        raise usage(f"cluster features does not know {action!r}: it has {', '.join(FEATURE_ACTIONS)}")
    if metadata or release_version:
        raise usage(
            "the levels of a release are known to kafka-features alone: name each with --feature NAME=LEVEL"
        )
    levels = parse_levels(feature or (), is_off=action == "disable")
    if (action == "describe") == bool(levels):
        raise usage(f"cluster features {action} {'takes no' if levels else 'needs a'} --feature")
    connection = flags.connect(bootstrap_server, command_config, command_property)
    from barnabas.cli.kafka import requests

    if action == "describe":
        show_rows(_feature_rows(connection), FEATURE_COLUMNS, output, title="features")
        return
    down = UNSAFE_DOWNGRADE if unsafe else SAFE_DOWNGRADE
    requests.update_features(connection, levels, UPGRADE if action == "upgrade" else down, is_dry_run=dry_run)
    for name, level in levels.items():
        say(f"{'would set' if dry_run else 'set'} feature {name} to level {level}")


def parse_levels(words: Sequence[str], *, is_off: bool) -> dict[str, int]:
    """`name=level` words, or names alone where features are switched off (level 0)."""
    levels = {}
    for word in words:
        name, separator, level = word.partition("=")
        if is_off == bool(separator) or (not is_off and not level.isdigit()):
            raise usage(f"--feature {word}: write {'the name alone' if is_off else 'NAME=LEVEL'}")
        levels[name] = 0 if is_off else int(level)
    return levels


def _feature_rows(connection: Connection) -> list[dict[str, Any]]:
    from barnabas.cli.kafka import requests

    node = connection.described().nodes[0]
    answer = requests.api_versions(connection, node.host, node.port)
    finalized = {feature.name: int(feature.max_version_level) for feature in answer.finalized_features}
    supported = {feature.name: feature for feature in answer.supported_features}
    rows = []
    for name in sorted({*supported, *finalized}):
        feature = supported.get(name)
        rows.append(
            {
                "feature": str(name),
                "supportedMin": int(feature.min_version) if feature else None,
                "supportedMax": int(feature.max_version) if feature else None,
                "finalized": finalized.get(name, 0),
                "epoch": int(answer.finalized_features_epoch),
            }
        )
    return rows


def quorum(
    action: Annotated[str, typer.Argument(help="describe.", show_default=False)] = "describe",
    status: Annotated[bool, typer.Option("--status", help="The quorum as a whole (default).")] = False,
    replication: Annotated[bool, typer.Option("--replication", "--re", help="Each of its nodes.")] = False,
    human_readable: Annotated[
        bool, typer.Option("--human-readable", "--hr", help="Times as times, and how long ago.")
    ] = False,
    output: flags.Output = OutputFormat.table,
    bootstrap_server: flags.BootstrapServer = "",
    bootstrap_controller: flags.BootstrapController = "",
    command_config: flags.ClusterConfig = None,
    command_property: flags.CommandProperty = None,
) -> None:
    """The metadata quorum (kafka-metadata-quorum describe)."""
    flags.refuse_controller(bootstrap_controller)
    if action != "describe":
        raise usage(
            f"cluster quorum knows describe only, not {action!r}: controllers come and go by their files"
        )
    if status and replication:
        raise usage("one of --status and --replication at a time")
    connection = flags.connect(bootstrap_server, command_config, command_property)
    from barnabas.cli.kafka import requests

    state, _ = requests.describe_quorum(connection)
    if replication:
        rows = quorum_rows(state)
        if human_readable:
            rows = [readable(row, round(time.time() * 1000)) for row in rows]
        show_rows(rows, QUORUM_COLUMNS, output, title="quorum nodes")
        return
    summary = {
        "clusterId": connection.described().cluster_id,
        "leaderId": int(state.leader_id),
        "leaderEpoch": int(state.leader_epoch),
        "highWatermark": int(state.high_watermark),
        "maxFollowerLag": max(row["lag"] for row in quorum_rows(state)),
        "currentVoters": [int(voter.replica_id) for voter in state.current_voters],
        "currentObservers": [int(observer.replica_id) for observer in state.observers],
    }
    lines: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in summary.items()]
    show_rows(
        [summary] if output is not OutputFormat.table else lines, STATUS_COLUMNS, output, title="quorum"
    )


def readable(row: dict[str, Any], now_ms: int) -> dict[str, Any]:
    """The same row with `2026-01-31T12:00:00.000Z (5 ms ago)` for milliseconds since the epoch."""
    from barnabas.cli.kafka.times import iso_time

    times = ("lastFetchTimestamp", "lastCaughtUpTimestamp")
    return row | {
        name: f"{iso_time(row[name])} ({max(now_ms - row[name], 0)} ms ago)"
        for name in times
        if row[name] >= 0
    }


def quorum_rows(state: Any) -> list[dict[str, Any]]:
    """A row for each voter and observer; the lag is counted from the leader's end."""
    nodes = [(voter, "Follower") for voter in state.current_voters]
    nodes += [(observer, "Observer") for observer in state.observers]
    ends = {int(node.replica_id): int(node.log_end_offset) for node, _ in nodes}
    leader_end = ends.get(int(state.leader_id), 0)
    return [
        {
            "node": int(node.replica_id),
            "status": "Leader" if node.replica_id == state.leader_id else status,
            "logEndOffset": int(node.log_end_offset),
            "lag": leader_end - int(node.log_end_offset),
            "directoryId": str(node.replica_directory_id) if node.replica_directory_id else None,
            "lastFetchTimestamp": int(node.last_fetch_timestamp),
            "lastCaughtUpTimestamp": int(node.last_caught_up_timestamp),
        }
        for node, status in nodes
    ]


def unregister(
    broker_id: Annotated[int, typer.Option("--id", "-i", min=0, help="The broker's id.")],
    bootstrap_server: flags.BootstrapServer = "",
    bootstrap_controller: flags.BootstrapController = "",
    command_config: flags.ClusterConfig = None,
    command_property: flags.CommandProperty = None,
) -> None:
    """Make a cluster forget a broker that has gone (kafka-cluster unregister); one that still runs comes back."""
    flags.refuse_controller(bootstrap_controller)
    connection = flags.connect(bootstrap_server, command_config, command_property)
    from barnabas.cli.kafka import requests

    requests.unregister_broker(connection, broker_id)
    say(f"unregistered broker {broker_id}")
