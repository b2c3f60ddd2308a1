"""`barnabas cluster`: kafka-cluster, kafka-broker-api-versions, kafka-features and kafka-metadata-quorum."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from barnabas.cli.commands import cluster_metadata, flags
from barnabas.cli.commands.shell_command import ShellCommand
from barnabas.cli.refusal import USAGE, Refused
from barnabas.cli.text.output import Column, OutputFormat, show_rows

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


@app.command("id", cls=ShellCommand)
@app.command("cluster-id", cls=ShellCommand, hidden=True)
def cluster_id(
    output: flags.Output = OutputFormat.table,
    bootstrap_server: flags.BootstrapServer = "",
    command_config: flags.ClusterConfig = None,
    command_property: flags.CommandProperty = None,
) -> None:
    """The cluster's id (kafka-cluster cluster-id)."""
    described = flags.connect(bootstrap_server, command_config, command_property).described()
    rows = [{"clusterId": described.cluster_id}]
    show_rows(
        rows,
        (Column("clusterId", "CLUSTER-ID"),),
        output,
        plain_line=lambda row: f"Cluster ID: {row['clusterId']}",
    )


@app.command(cls=ShellCommand)
@app.command("list-endpoints", cls=ShellCommand, hidden=True)
def brokers(
    include_fenced_brokers: Annotated[
        bool, typer.Option("--include-fenced-brokers", help="Refused: clients are not told of them.")
    ] = False,
    output: flags.Output = OutputFormat.table,
    bootstrap_server: flags.BootstrapServer = "",
    command_config: flags.ClusterConfig = None,
    command_property: flags.CommandProperty = None,
) -> None:
    """The brokers, where clients reach them, and which is the controller (kafka-cluster list-endpoints)."""
    if include_fenced_brokers:
        raise Refused(
            "librdkafka is not told of fenced brokers: use kafka-cluster list-endpoints for them", USAGE
        )
    described = flags.connect(bootstrap_server, command_config, command_property).described()
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


@app.command(cls=ShellCommand)
def api_versions(
    output: flags.Output = OutputFormat.table,
    bootstrap_server: flags.BootstrapServer = "",
    command_config: flags.ClusterConfig = None,
    command_property: flags.CommandProperty = None,
) -> None:
    """The requests each broker serves, in which versions (kafka-broker-api-versions)."""
    connection = flags.connect(bootstrap_server, command_config, command_property)
    from barnabas.cli.kafka import requests
    from barnabas.wire.schema import api_name, is_known_api

    rows = []
    for node in sorted(connection.described().nodes, key=lambda node: int(node.id)):
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


app.command(cls=ShellCommand)(cluster_metadata.features)
app.command(cls=ShellCommand)(cluster_metadata.quorum)
app.command(cls=ShellCommand)(cluster_metadata.unregister)
