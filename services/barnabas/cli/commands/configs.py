"""`barnabas configs`: kafka-configs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from barnabas.cli.commands import flags
from barnabas.cli.commands.flag_sets import spread
from barnabas.cli.refusal import Refused, usage
from barnabas.cli.text.output import Column, OutputFormat, say, show_rows

if TYPE_CHECKING:
    from barnabas.cli.kafka.connection import Connection

COLUMNS: Final = (
    Column("entity", "ENTITY", "cyan"),
    Column("name", "NAME"),
    Column("value", "VALUE", "green"),
    Column("source", "SOURCE", "dim"),
)
ENTITY_TYPES: Final = {
    "topics": "topic",
    "brokers": "broker",
    "broker-loggers": "broker-logger",
    "client-metrics": "client-metrics",
    "groups": "group",
    "users": "user",
    "clients": "client-id",
    "ips": "ip",
}
"""What --entity-type says, and the same in one word."""

QUOTA_KINDS: Final = ("user", "client-id", "ip")


ActionFlag = Annotated[str | None, typer.Argument(help="describe or alter; or as flags.", show_default=False)]
DescribeFlag = Annotated[bool, typer.Option("--describe", help="Show configs.")]
AlterFlag = Annotated[bool, typer.Option("--alter", help="Change configs.")]
EntityTypeFlag = Annotated[
    list[str] | None, typer.Option(metavar="TYPE", help=f"One of {', '.join(ENTITY_TYPES)}.")
]
EntityNameFlag = Annotated[list[str] | None, typer.Option(metavar="NAME", help="Which one.")]
EntityDefaultFlag = Annotated[bool, typer.Option("--entity-default", help="The defaults for all.")]
TopicFlag = Annotated[
    str, typer.Option(metavar="TOPIC", help="A topic.", autocompletion=flags.complete_topic)
]
BrokerFlag = Annotated[str, typer.Option(metavar="ID", help="A broker.")]
BrokerDefaultsFlag = Annotated[bool, typer.Option("--broker-defaults", help="The brokers' defaults.")]
BrokerLoggerFlag = Annotated[str, typer.Option(metavar="ID", help="A broker's log levels.")]
ClientMetricsFlag = Annotated[str, typer.Option(metavar="NAME", help="A metrics subscription.")]
GroupFlag = Annotated[str, typer.Option(metavar="GROUP", help="A group.")]
UserDefaultsFlag = Annotated[bool, typer.Option("--user-defaults", help="The quotas of all users.")]
ClientDefaultsFlag = Annotated[bool, typer.Option("--client-defaults", help="The quotas of all client ids.")]
IpDefaultsFlag = Annotated[bool, typer.Option("--ip-defaults", help="The quotas of all addresses.")]
UserFlag = Annotated[str, typer.Option(metavar="USER", help="A user's quotas.")]
ClientFlag = Annotated[str, typer.Option(metavar="CLIENT-ID", help="A client id's quotas.")]
IpFlag = Annotated[str, typer.Option(metavar="ADDRESS", help="An address's quotas.")]
AddConfigFlag = Annotated[
    str, typer.Option(metavar="NAME=VALUE,...", help="Configs to set; [a,b] for a value with commas.")
]
AddConfigFileFlag = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Configs to set, as properties.")
]
DeleteConfigFlag = Annotated[str, typer.Option(metavar="NAME,...", help="Back to the default.")]
AllFlag = Annotated[bool, typer.Option("--all", help="Show defaults too.")]
DryRunFlag = Annotated[bool, typer.Option("--dry-run", help="Let the cluster check, change nothing.")]


@dataclass(frozen=True)
class NameFlags:
    """Entities by a flag of their own."""

    topic: TopicFlag = ""
    broker: BrokerFlag = ""
    broker_defaults: BrokerDefaultsFlag = False
    broker_logger: BrokerLoggerFlag = ""
    client_metrics: ClientMetricsFlag = ""
    group: GroupFlag = ""
    user: UserFlag = ""
    client: ClientFlag = ""
    ip: IpFlag = ""
    user_defaults: UserDefaultsFlag = False
    client_defaults: ClientDefaultsFlag = False
    ip_defaults: IpDefaultsFlag = False

    def short(self) -> dict[str, str]:
        """Kind to name, empty where it is not given."""
        return {
            "topic": self.topic,
            "broker": self.broker,
            "broker-logger": self.broker_logger,
            "client-metrics": self.client_metrics,
            "group": self.group,
            "user": self.user,
            "client-id": self.client,
            "ip": self.ip,
        }

    def defaults(self) -> dict[str, bool]:
        """Kind to whether its defaults are meant."""
        return {
            "broker": self.broker_defaults,
            "user": self.user_defaults,
            "client-id": self.client_defaults,
            "ip": self.ip_defaults,
        }


@spread
def configs(
    named: NameFlags,
    action: ActionFlag = None,
    name: flags.TopicWord = None,
    describe: DescribeFlag = False,
    alter: AlterFlag = False,
    entity_type: EntityTypeFlag = None,
    entity_name: EntityNameFlag = None,
    entity_default: EntityDefaultFlag = False,
    add_config: AddConfigFlag = "",
    add_config_file: AddConfigFileFlag = None,
    delete_config: DeleteConfigFlag = "",
    all_: AllFlag = False,
    dry_run: DryRunFlag = False,
    output: flags.Output = OutputFormat.table,
    bootstrap_server: flags.BootstrapServer = "",
    bootstrap_controller: flags.BootstrapController = "",
    command_config: flags.CommandConfig = None,
    command_property: flags.CommandProperty = None,
) -> None:
    """Show and change configs of topics, brokers, groups, quotas (kafka-configs)."""
    named = replace(named, topic=flags.one_topic(name, named.topic, "configs"))
    what = flags.chosen({"describe": describe, "alter": alter}, action, "configs")
    flags.refuse_controller(bootstrap_controller)
    entities = parse_entities(
        entity_type or (), entity_name or (), entity_default, named.short(), named.defaults()
    )
    values = parse_added(add_config, add_config_file)
    deleted = [word.strip() for word in delete_config.split(",") if word.strip()]
    if what == "alter" and not values and not deleted:
        raise usage("configs --alter needs --add-config, --add-config-file or --delete-config")
    connection = flags.connect(bootstrap_server, command_config, command_property)
    if set(entities) <= set(QUOTA_KINDS):
        _quotas(connection, what, entities, values, deleted, output, is_dry_run=dry_run)
        return
    ((kind, name),) = entities.items()
    if what == "alter":
        _alter(connection, kind, name, values, deleted, is_dry_run=dry_run)
    else:
        rows = _rows(connection, kind, name, with_defaults=all_)
        show_rows(rows, COLUMNS, output, title="configs")


app = flags.application(configs)

Entities = dict[str, str | None]
"""Kind of entity to its name: "" for every one there is, None for the defaults."""


def parse_entities(
    types: Sequence[str],
    names: Sequence[str],
    is_default: bool,
    short: Mapping[str, str],
    defaults: Mapping[str, bool],
) -> Entities:
    """What the flags name: one resource, or a user with a client id, in Kafka's long or short flags."""
    entities: Entities = {kind: name for kind, name in short.items() if name}
    for default in (kind for kind, is_given in defaults.items() if is_given):
        if default in entities:
            raise usage(
                f"--{default.removesuffix('-id')} and --{default.removesuffix('-id')}-defaults at once"
            )
        entities[default] = None
    unnamed = list(names)
    for word in types:
        kind = ENTITY_TYPES.get(word)
        if kind is None:
            raise usage(f"--entity-type {word}: one of {', '.join(ENTITY_TYPES)}")
        entities[kind] = unnamed.pop(0) if unnamed else (None if is_default else "")
    if unnamed:
        raise usage("every --entity-name needs an --entity-type before it")
    if not entities:
        raise usage(
            "name what to look at: --topic, --broker, --group, ... or --entity-type and --entity-name"
        )
    if len(entities) > 1 and not set(entities) <= set(QUOTA_KINDS):
        raise usage("one kind of entity at a time; only users and clients go together")
    return entities


def parse_added(text: str, path: Path | None) -> dict[str, str]:
    """`a=1,b=[x,y]`, and the properties of a file below it."""
    found: dict[str, str] = {}
    if path is not None:
        from barnabas.cli.kafka.properties import parse_properties

        try:
            found.update(parse_properties(path.read_text()))
        except OSError as error:
            raise usage(f"cannot read {path} ({error.strerror})") from error
    # A comma inside square brackets belongs to the value; brackets around a whole value are taken off.
    opened = re.search(r"\[[^\]]*\Z", text)
    if opened is not None:
        raise usage(f"--add-config has an open bracket in {opened[0]!r}: close it with ]")
    for word in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        name, separator, value = word.strip().partition("=")
        if not separator or not name:
            raise usage(f"--add-config {name!r} has no value: write it as NAME=VALUE")
        if value.startswith("[") and value.endswith("]"):
            value = value[1:-1]
        found[name] = value
    return found


def _quotas(
    connection: Connection,
    what: str,
    entities: Entities,
    values: Mapping[str, str],
    deleted: Sequence[str],
    output: OutputFormat,
    *,
    is_dry_run: bool,
) -> None:
    from barnabas.cli.kafka import quotas

    if what == "alter":
        quotas.alter(connection, entities, values, deleted, is_dry_run=is_dry_run)
        say(f"{'would alter' if is_dry_run else 'altered'} quotas of {_quota_entity(entities)}")
        return
    found = quotas.describe(connection, entities)
    rows = [{"entity": _quota_entity(quota.entity), **quota.as_data()} for quota in found]
    show_rows(rows, COLUMNS, output, title="quotas")


def _alter(
    connection: Connection,
    kind: str,
    name: str | None,
    values: Mapping[str, str],
    deleted: Sequence[str],
    *,
    is_dry_run: bool,
) -> None:
    from barnabas.cli.kafka import configs as cluster_configs

    if name == "" or (name is None and kind != "broker"):
        raise usage(f"name the {kind}, with --entity-name or --{kind}")
    admin = connection.admin()
    check_broker(connection, admin, kind, name)
    if deleted and kind in ("topic", "broker", "group") and name:
        known = cluster_configs.read(connection, admin, kind, name)
        unknown = [word for word in deleted if word not in known]
        if unknown:
            raise Refused(
                f"no config of {_entity(kind, name)} is called {', '.join(unknown)}: "
                "`barnabas configs --describe --all` shows what there is"
            )
    cluster_configs.change(connection, admin, kind, name or "", values, deleted, is_dry_run=is_dry_run)
    say(f"{'would alter' if is_dry_run else 'altered'} configs of {_entity(kind, name)}")


def check_broker(connection: Connection, admin: Any, kind: str, name: str | None) -> None:
    """Raise Refused for a broker that is not there: librdkafka would wait for it to come."""
    if kind not in ("broker", "broker-logger") or not name:
        return
    brokers = {str(number) for number in connection.cluster(admin).brokers}
    if name not in brokers:
        raise Refused(f"no broker {name}: `barnabas cluster brokers` shows what there is")


def _rows(
    connection: Connection, kind: str, name: str | None, *, with_defaults: bool
) -> list[dict[str, Any]]:
    from barnabas.cli.kafka import configs as cluster_configs

    admin = connection.admin()
    check_broker(connection, admin, kind, name)
    names = [name] if name != "" else _all_names(connection, admin, kind)
    rows: list[dict[str, Any]] = []
    for one in names:
        settings = cluster_configs.read(connection, admin, kind, one or "")
        rows += [
            {
                "entity": _entity(kind, one),
                "name": setting.name,
                "value": "[hidden]" if setting.is_sensitive else setting.value,
                "source": setting.source,
                "sensitive": setting.is_sensitive,
                "readOnly": setting.is_read_only,
                "synonyms": [] if setting.is_sensitive else list(setting.synonyms),
            }
            for setting in sorted(settings.values(), key=lambda setting: setting.name)
            if setting.is_own or with_defaults or kind == "broker-logger"
        ]
    return rows


def _all_names(connection: Connection, admin: Any, kind: str) -> list[str | None]:
    """Every resource of a kind; brokers end with their defaults, as in Kafka's tool."""
    if kind == "topic":
        return sorted(connection.cluster(admin).topics)
    if kind in ("broker", "broker-logger"):
        ids: list[str | None] = [str(number) for number in sorted(connection.cluster(admin).brokers)]
        return [*ids, None] if kind == "broker" else ids
    from barnabas.cli.kafka import configs as cluster_configs
    from barnabas.cli.kafka import requests

    return list(requests.list_config_resources(connection, cluster_configs.RESOURCE_TYPES[kind]))


def _entity(kind: str, name: str | None) -> str:
    return f"{kind} defaults" if name is None else f"{kind} {name}"


def _quota_entity(entities: Mapping[str, str | None]) -> str:
    return ", ".join(
        f"{kind} {'<default>' if name is None else name or '*'}" for kind, name in entities.items()
    )
