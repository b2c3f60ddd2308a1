"""What topics and brokers have for some settings, read and changed by a command that outlives a connection.

`configs` shows and changes them for somebody who asks for that, through librdkafka: with sources and synonyms. Here it
is values, and each broker is asked for what is its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from barnabas.cli.balance.cluster_state import Node
from barnabas.cli.kafka.administration import Administration
from barnabas.cli.kafka.plain_connection import Unanswered
from barnabas.cli.kafka.requests import DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS, check, nested
from barnabas.cli.refusal import Refused
from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.kafka_values import BROKER_RESOURCE, DELETE_CONFIG, SET_CONFIG, TOPIC_RESOURCE
from barnabas.metadata.effective import ConfigSource

_TOPICS_A_REQUEST: Final = 200


def broker_values(administration: Administration, node: Node, names: Sequence[str]) -> dict[str, str]:
    """Which of these settings a broker has, asked at the broker itself, as Kafka wants it; none if it does not say."""
    name = str(node.node_id)
    try:
        return _read_configs(administration, BROKER_RESOURCE, [name], names, node).get(name, {})
    except Unanswered:
        return {}


def own_broker_values(administration: Administration, node: Node, names: Sequence[str]) -> dict[str, str]:
    """Which of these settings were set for this very broker: not what it has from its file, or as all brokers do.

    Raises Refused where nobody says so.
    """
    name = str(node.node_id)
    source = ConfigSource.DYNAMIC_BROKER_CONFIG.value
    found = _read_configs(administration, BROKER_RESOURCE, [name], names, node, source=source)
    if name not in found:
        raise Refused(f"cannot describe the configs of broker {name}: may this client do so?")
    return found[name]


def topic_values(
    administration: Administration, topics: Iterable[str], names: Sequence[str]
) -> dict[str, dict[str, str]]:
    """topic -> setting -> its value, for each of `names`; topics that are gone are left out."""
    ordered = sorted(set(topics))
    found: dict[str, dict[str, str]] = {}
    for start in range(0, len(ordered), _TOPICS_A_REQUEST):
        portion = ordered[start : start + _TOPICS_A_REQUEST]
        found |= _read_configs(administration, TOPIC_RESOURCE, portion, names)
    return found


def _read_configs(
    administration: Administration,
    resource_type: int,
    resources: Sequence[str],
    names: Sequence[str],
    node: Node | None = None,
    *,
    source: int | None = None,
) -> dict[str, dict[str, str]]:
    """resource -> name -> value, for each of `names` that has one; resources that are not there are left out.

    With a `source`, one of Kafka's numbers for where a value comes from, only what comes from there.
    """

    def make(schema: Any) -> Any:
        resource = nested(schema, "resources")
        wanted = tuple(
            resource(resource_type=resource_type, resource_name=name, configuration_keys=tuple(names))
            for name in resources
        )
        return schema(resources=wanted, include_synonyms=False, include_documentation=False)

    if node is not None and node.address is not None:
        answer = administration.ask_broker(node.address, DESCRIBE_CONFIGS, 4, make)
    else:
        answer = administration.ask(DESCRIBE_CONFIGS, 4, make)
    return {
        result.resource_name: {
            entry.name: entry.value
            for entry in result.configs or ()
            if entry.value is not None and source in (None, entry.config_source)
        }
        for result in answer.results
        if result.error_code == 0
    }


def change_broker(administration: Administration, node: Node, values: Mapping[str, str | None]) -> None:
    """Set a broker's own settings, or unset those with None: asked at the broker itself, as Kafka wants it.

    Raises Refused.
    """
    name = str(node.node_id)
    result = _altered(administration, BROKER_RESOURCE, name, values, node)
    check(result.error_code, f"cannot alter the configs of {name}", result.error_message)


def change_topic(administration: Administration, topic: str, values: Mapping[str, str | None]) -> None:
    """Set a topic's settings, or unset those with None; one that was deleted meanwhile has nothing to be changed.

    Raises Refused.
    """
    result = _altered(administration, TOPIC_RESOURCE, topic, values, None)
    if result.error_code != ErrorCode.unknown_topic_or_partition:
        check(result.error_code, f"cannot alter the configs of {topic}", result.error_message)


def _altered(
    administration: Administration,
    resource_type: int,
    name: str,
    values: Mapping[str, str | None],
    node: Node | None,
) -> Any:
    def make(schema: Any) -> Any:
        resource = nested(schema, "resources")
        entry = nested(resource, "configs")
        entries = tuple(
            entry(name=key, config_operation=DELETE_CONFIG if value is None else SET_CONFIG, value=value)
            for key, value in values.items()
        )
        changed = resource(resource_type=resource_type, resource_name=name, configs=entries)
        return schema(resources=(changed,), validate_only=False)

    if node is not None and node.address is not None:
        answer = administration.ask_broker(node.address, INCREMENTAL_ALTER_CONFIGS, 1, make)
    else:
        answer = administration.ask(INCREMENTAL_ALTER_CONFIGS, 1, make)
    if not answer.responses:
        raise Refused(f"cannot alter the configs of {name}: the broker did not say whether it did")
    return answer.responses[0]
