"""`barnabas cluster`: kafka-cluster, kafka-broker-api-versions, kafka-features and kafka-metadata-quorum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from barnabas.cli.commands import flags
from barnabas.cli.refusal import USAGE, Refused
from barnabas.cli.text.output import Column, OutputFormat, show_rows

if TYPE_CHECKING:
    from barnabas.cli.kafka.connection import Connection

app = typer.Typer(
    help="The cluster itself: its id, brokers, versions, features, quorum.",
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)

BROKER_COLUMNS: Final = (
    Column("id", "ID", "cyan", is_number=True),
    Column("host", "HOST"),
    Column("port", "PORT", is_number=True),
    Column("rack", "RACK"),
    Column("isController", "CONTROLLER"),
)
VERSION_COLUMNS: Final = (
    Column("broker", "BROKER", is_number=True),
    Column("key", "KEY", is_number=True),
    Column("api", "API", "cyan"),
    Column("min", "MIN", is_number=True),
    Column("max", "MAX", is_number=True),
)
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


@app.command("id")
@app.command("cluster-id")
def cluster_id(
    output: flags.Output = OutputFormat.table,
    bootstrap_server: flags.BootstrapServer = "",
    command_config: flags.CommandConfig = None,
    command_property: flags.CommandProperty = None,
) -> None:
    """The cluster's id (kafka-cluster cluster-id)."""
    described = _describe(flags.connect(bootstrap_server, command_config, command_property))
    rows = [{"clusterId": described.cluster_id}]
    show_rows(
        rows,
        (Column("clusterId", "CLUSTER-ID"),),
        output,
        plain_line=lambda row: f"Cluster ID: {row['clusterId']}",
    )


@app.command()
def brokers(
    output: flags.Output = OutputFormat.table,
    bootstrap_server: flags.BootstrapServer = "",
    command_config: flags.CommandConfig = None,
    command_property: flags.CommandProperty = None,
) -> None:
    """The brokers, where clients reach them, and which is the controller (kafka-cluster list-endpoints)."""
    described = _describe(flags.connect(bootstrap_server, command_config, command_property))
    controller = described.controller.id if described.controller else None
    rows = [
        {
            "id": node.id,
            "host": node.host,
            "port": node.port,
            "rack": node.rack,
            "isController": node.id == controller,
        }
        for node in sorted(described.nodes, key=lambda node: int(node.id))
    ]
    show_rows(rows, BROKER_COLUMNS, output, title="brokers")


@app.command()
def api_versions(
    output: flags.Output = OutputFormat.table,
    bootstrap_server: flags.BootstrapServer = "",
    command_config: flags.CommandConfig = None,
    command_property: flags.CommandProperty = None,
) -> None:
    """The requests each broker serves, in which versions (kafka-broker-api-versions)."""
    connection = flags.connect(bootstrap_server, command_config, command_property)
    from barnabas.cli.kafka import requests
    from barnabas.wire.schema import api_name, is_known_api

    rows = []
    for node in sorted(_describe(connection).nodes, key=lambda node: int(node.id)):
        answer = requests.api_versions(connection, node.host, node.port)
        for api in sorted(answer.api_keys, key=lambda api: int(api.api_key)):
            name = api_name(api.api_key) if is_known_api(api.api_key) else f"UNKNOWN({api.api_key})"
            rows.append(
                {
                    "broker": node.id,
                    "key": int(api.api_key),
                    "api": name,
                    "min": int(api.min_version),
                    "max": int(api.max_version),
                }
            )
    show_rows(rows, VERSION_COLUMNS, output, title="versions of requests")


@app.command()
def features(
    action: Annotated[str, typer.Argument(help="describe.", show_default=False)] = "describe",
    output: flags.Output = OutputFormat.table,
    bootstrap_server: flags.BootstrapServer = "",
    command_config: flags.CommandConfig = None,
    command_property: flags.CommandProperty = None,
) -> None:
    """Supported and finalized features (kafka-features describe)."""
    _only_describe(action, "features")
    connection = flags.connect(bootstrap_server, command_config, command_property)
    from barnabas.cli.kafka import requests

    node = _describe(connection).nodes[0]
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
    show_rows(rows, FEATURE_COLUMNS, output, title="features")


@app.command()
def quorum(
    action: Annotated[str, typer.Argument(help="describe.", show_default=False)] = "describe",
    status: Annotated[bool, typer.Option("--status", help="The quorum as a whole.")] = False,
    replication: Annotated[bool, typer.Option("--replication", "--re", help="Each of its nodes.")] = False,
    output: flags.Output = OutputFormat.table,
    bootstrap_server: flags.BootstrapServer = "",
    command_config: flags.CommandConfig = None,
    command_property: flags.CommandProperty = None,
) -> None:
    """The metadata quorum (kafka-metadata-quorum describe)."""
    _only_describe(action, "quorum")
    connection = flags.connect(bootstrap_server, command_config, command_property)
    from barnabas.cli.kafka import requests

    state, _ = requests.describe_quorum(connection)
    if status or not replication:
        summary = {
            "clusterId": _describe(connection).cluster_id,
            "leaderId": int(state.leader_id),
            "leaderEpoch": int(state.leader_epoch),
            "highWatermark": int(state.high_watermark),
            "currentVoters": [int(voter.replica_id) for voter in state.current_voters],
            "currentObservers": [int(observer.replica_id) for observer in state.observers],
        }
        rows: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in summary.items()]
        show_rows(
            [summary] if output is not OutputFormat.table else rows, STATUS_COLUMNS, output, title="quorum"
        )
    if replication:
        show_rows(quorum_rows(state), QUORUM_COLUMNS, output, title="quorum nodes")


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


def _only_describe(action: str, command: str) -> None:
    if action != "describe":
        raise Refused(f"cluster {command} knows `describe` only, not {action!r}", USAGE)


def _describe(connection: Connection) -> Any:
    from barnabas.cli.kafka.connection import ANSWER_SECONDS_MAX

    admin = connection.admin()
    connection.cluster(admin)
    return admin.describe_cluster().result(ANSWER_SECONDS_MAX)
