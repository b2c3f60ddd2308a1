"""Client quotas (KIP-546): of users, client ids and addresses; over a socket of our own, librdkafka has them not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from barnabas.cli.kafka.connection import Connection
from barnabas.cli.kafka.plain_connection import open_bootstrap, request_schema
from barnabas.cli.kafka.requests import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS, check, nested
from barnabas.cli.refusal import usage

EXACT, DEFAULT, ANY = 0, 1, 2
"""How a component of an entity is matched."""

NAMES: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)


@dataclass(frozen=True)
class Quota:
    """One quota of one entity; a name of None stands for the default."""

    entity: dict[str, str | None]
    name: str
    value: float

    def as_data(self) -> dict[str, Any]:
        return {"name": self.name, "value": self.value, "source": "CLIENT_QUOTA"}


def describe(connection: Connection, entities: Mapping[str, str | None]) -> list[Quota]:
    """The quotas of `entities`: kind to name, None for the default, "" for all of the kind."""
    schema = request_schema(DESCRIBE_CLIENT_QUOTAS, 1)
    component = nested(schema, "components")
    components = tuple(
        component(
            entity_type=kind,
            match_type=EXACT if name else DEFAULT if name is None else ANY,
            match=name or None,
        )
        for kind, name in entities.items()
    )
    with open_bootstrap(connection) as broker:
        answer = broker.ask(schema(components=components, strict=False))
    check(answer.error_code, "cannot describe the quotas", answer.error_message)
    return [
        Quota({part.entity_type: part.entity_name for part in entry.entity}, value.key, value.value)
        for entry in answer.entries or ()
        for value in entry.values
    ]


def alter(
    connection: Connection,
    entities: Mapping[str, str | None],
    values: Mapping[str, str],
    deleted: Iterable[str],
    *,
    is_dry_run: bool,
) -> None:
    """Set and remove quotas of one entity; raises Refused."""
    if "" in entities.values():
        raise usage("name whose quotas to alter: --entity-name, or --entity-default")
    schema = request_schema(ALTER_CLIENT_QUOTAS, 1)
    entry = nested(schema, "entries")
    part, operation = nested(entry, "entity"), nested(entry, "ops")
    operations = [
        operation(key=key, value=_number(key, value), remove=False) for key, value in values.items()
    ]
    operations += [operation(key=key, value=0.0, remove=True) for key in deleted]
    parts = tuple(part(entity_type=kind, entity_name=name) for kind, name in entities.items())
    with open_bootstrap(connection) as broker:
        answer = broker.ask(
            schema(entries=(entry(entity=parts, ops=tuple(operations)),), validate_only=is_dry_run)
        )
    for result in answer.entries:
        check(result.error_code, "cannot alter the quotas", result.error_message)


def _number(name: str, value: str) -> float:
    if name.lower().startswith("scram-sha"):
        raise usage("SCRAM credentials are no quota: this command does not set them")
    try:
        return float(value)
    except ValueError as error:
        raise usage(f"the quota {name} is a number, not {value!r}; quotas are {', '.join(NAMES)}") from error
