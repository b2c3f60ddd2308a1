"""docs/configuration.md, written from the tables of settings: `python -m barnabas.cli.configuration_page`."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, get_type_hints

from barnabas.cli.plan import SETTINGS_OF_THREE_NODES, SETTINGS_OF_UP
from barnabas.controller.config import ControllerConfig
from barnabas.coordinator.config import CoordinatorConfig
from barnabas.gateway.config import GatewayConfig
from barnabas.host.config import COORDINATOR_ID
from barnabas.kernel.config import property_name
from barnabas.kernel.variables import ENVIRONMENT_PREFIX
from barnabas.metadata.broker_settings import AREAS, BROKER_SETTINGS
from barnabas.metadata.client_metrics_settings import CLIENT_METRICS_SETTINGS
from barnabas.metadata.config_def import ConfigDef, UpdateMode
from barnabas.metadata.group_settings import GROUP_SETTINGS
from barnabas.metadata.settings import effects
from barnabas.metadata.settings.other_defaults import OTHER_DEFAULTS
from barnabas.metadata.settings_table import rows_of
from barnabas.metadata.topic_settings import TOPIC_SETTINGS
from barnabas.storage.config import StorageConfig

SERVICES: Final[Mapping[str, type]] = {
    "Gateway": GatewayConfig,
    "Storage node": StorageConfig,
    "Controller": ControllerConfig,
    "Coordinator": CoordinatorConfig,
}

_READERS: Final = {
    "storage": effects.STORAGE,
    "controller": effects.CONTROLLER | effects.ELECTIONS,
    "gateway": effects.GATEWAY,
    "coordinator": effects.COORDINATOR | effects.GROUP,
}

_CHANGES: Final = {
    UpdateMode.READ_ONLY: "at start",
    UpdateMode.PER_BROKER: "one broker",
    UpdateMode.CLUSTER_WIDE: "any time",
}

_INTRODUCTION: Final = f"""\
# Configuration

Written by `python -m barnabas.cli.configuration_page` from the tables of settings; a test holds this page to it.

Barnabas knows every setting of Apache Kafka 4.3 under Kafka's name, with Kafka's type, valid values and default (but
for [a few defaults](#other-defaults-than-kafkas)). What it does not act on yet is checked, kept and shown all the same,
so that tools and scripts find what they expect; the column *Effect* says so.

Where settings go:

- **A cluster on one machine:** `barnabas up --override num.partitions=3 --override log.retention.hours=24` sets broker
  settings for all of its services; repeat the flag for more.
- **A service by itself:** `python -m barnabas.storage --config FILE` reads a properties file (`name=value`, one a
  line), and the environment (`{ENVIRONMENT_PREFIX}NODE_ID=1` for `node.id`), which wins. A storage node
  takes every broker setting from both, and shows them to clients; those that the controller, gateway or coordinator
  acts on belong there too. Brokers have a file of their own, at the end of this page.
- **While it runs:** `kafka-configs --alter` for topics, brokers (`--entity-default` for all of them), groups and client
  metrics. *Change* says what can: `any time` for one broker or all of them, `one broker` for one only, `at start` not
  at all.

A wrong value is refused in one line, and so is a wrong name in a file. Variables `{ENVIRONMENT_PREFIX}...` that are no
settings of the service are told in one warning when it starts, unless they are known to be for somebody else, as those
are that Kubernetes makes for every Service. What counts is, in this order: what was set on the topic or group, on the
broker, on all brokers, in the variable, in the file, and Kafka's default.
"""

REASONS_FOR_OTHER_DEFAULTS: Final[Mapping[str, str]] = {
    "broker.session.timeout.ms": "A node that died is noticed sooner, and its partitions shown without a leader.",
    "group.initial.rebalance.delay.ms": "On one machine a lone consumer is not to wait for others.",
    "max.connections": "Every gateway bounds what it takes on.",
    "offsets.topic.replication.factor": "-1 is 3, or one on each storage node where there are fewer, and more as "
    "nodes join: groups work on one node, and survive its loss once there are more. A number that is set is waited "
    "for, as in Kafka.",
    "queued.max.request.bytes": "The same for the memory of requests that are being served.",
    "transaction.state.log.replication.factor": "As for `offsets.topic.replication.factor`: transactions work on one "
    "node.",
}
"""Why settings are not as Kafka has them."""

_HEADER: Final = (
    "| Setting | Type | Default | Valid values | Change | Effect | Meaning |",
    "|---|---|---|---|---|---|---|",
)


def lines() -> Iterator[str]:
    """The page, line by line."""
    yield from _INTRODUCTION.splitlines()
    yield from _section("## Topics", TOPIC_SETTINGS.values())
    yield from ("", "## Brokers")
    for module, title in AREAS.items():
        names = sorted(row[0] for row in rows_of(module))
        yield from _section(f"### {title}", (BROKER_SETTINGS[name] for name in names))
    yield from _section("## Groups", GROUP_SETTINGS.values())
    yield from _section("## Client metrics", CLIENT_METRICS_SETTINGS.values())
    yield from _other_defaults()
    yield from ("", "## The services' own files", "")
    yield "Kafka's names where Kafka has the setting; the defaults are those of a service that is started by itself."
    for title, config_type in SERVICES.items():
        yield from (
            "",
            f"### {title}",
            "",
            "| Setting | Type | Default | Unit | Meaning |",
            "|---|---|---|---|---|",
        )
        yield from _service_rows(config_type)
    yield from _broker_section()


def _broker_section() -> Iterator[str]:
    yield from ("", "### Broker", "")
    yield "`python -m barnabas.host --config FILE` is a gateway and a storage node in one process, and where its"
    yield f"settings have `{COORDINATOR_ID}` a coordinator, too. All have one file (or set of variables): every"
    yield "setting of *Gateway*, *Storage node* and *Coordinator*, and any broker setting. Each part takes those that"
    yield f"it knows. Without `{COORDINATOR_ID}`, those of Kafka's that only a coordinator acts on are kept and shown"
    yield "to clients, and its others are not known. A broker that is a coordinator needs a port in `listen.address`:"
    yield "its storage node and its coordinator are both found there. These settings of a storage node are known to"
    yield "others as well, and mean the same to each:"
    yield ""
    others = {field.name for part in (GatewayConfig, CoordinatorConfig) for field in dataclasses.fields(part)}
    yield from ("| Setting | Default | Meaning |", "|---|---|---|")
    for field in dataclasses.fields(StorageConfig):
        if field.name in others:
            default = _shown_default(field.default)
            yield _row(f"`{property_name(field.name)}`", default, field.metadata["help"])


def _other_defaults() -> Iterator[str]:
    yield from ("", "## Other defaults than Kafka's", "")
    yield "These settings have other defaults than Kafka's, in every service or in the clusters that `barnabas up`"
    yield "starts; brokers show them as they are. What a file, a variable or `--override` says wins over both."
    yield from (
        "",
        "| Setting | Kafka | A service by itself | `barnabas up` | Why |",
        "|---|---|---|---|---|",
    )
    of_services = {
        property_name(field.name): field.default
        for config_type in SERVICES.values()
        for field in dataclasses.fields(config_type)
    }
    for name, why in REASONS_FOR_OTHER_DEFAULTS.items():
        by_itself = str(of_services[name])
        with_up = SETTINGS_OF_UP.get(name, by_itself)
        yield _row(f"`{name}`", *map(_default, (BROKER_SETTINGS[name].default, by_itself, with_up)), why)
    set_then = " and ".join(f"`{name}={value}`" for name, value in SETTINGS_OF_THREE_NODES.items())
    yield ""
    yield f"With three nodes or more (`barnabas up --nodes 3`), `up` sets {set_then} as well; so do the compose project"
    yield "and the chart. See [durability.md](durability.md)."


def page() -> str:
    """The whole of docs/configuration.md."""
    return "".join(f"{line}\n" for line in lines())


def _section(title: str, definitions: Iterable[ConfigDef]) -> Iterator[str]:
    yield from ("", title, "", *_HEADER)
    for definition in definitions:
        yield _row(
            f"`{definition.name}`",
            definition.type.name.lower(),
            _default(OTHER_DEFAULTS.get(definition.name, definition.default)),
            definition.valid_values,
            _CHANGES[definition.update_mode],
            _effect(definition),
            definition.documentation,
        )


def _effect(definition: ConfigDef) -> str:
    readers = [reader for reader, names in _READERS.items() if definition.name in names]
    if not readers and definition.has_effect:
        readers = ["gateway" if definition.name in CLIENT_METRICS_SETTINGS else "storage"]
    return ", ".join(readers) or "none"


def _default(text: str | None) -> str:
    if text is None:
        return ""
    return f"`{text}`" if text else "(empty)"


def _service_rows(config_type: type) -> Iterator[str]:
    types = get_type_hints(config_type)
    for field in dataclasses.fields(config_type):
        if field.metadata.get("others"):
            yield _row("*any broker setting*", "", "", "", field.metadata["help"])
            continue
        kind = "list" if isinstance(field.default, tuple) else types[field.name].__name__
        unit, meaning = field.metadata["unit"], field.metadata["help"]
        yield _row(f"`{property_name(field.name)}`", kind, _shown_default(field.default), unit, meaning)


def _shown_default(value: object) -> str:
    text = ",".join(value) if isinstance(value, tuple) else str(value)
    return _default(text.lower() if isinstance(value, bool) else text)


def _row(*cells: str) -> str:
    return "|" + "|".join(f" {cell.replace('|', chr(92) + '|')} " if cell else " " for cell in cells) + "|"


if __name__ == "__main__":
    sys.stdout.write(page())
