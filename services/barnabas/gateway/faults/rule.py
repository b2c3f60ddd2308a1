"""One injected fault: which requests it is for, and what happens to them."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, get_type_hints

from kio.schema.index import api_key_map

from barnabas.gateway import limits
from barnabas.kernel.errors import ErrorCode
from barnabas.wire.schema import api_name

Document = Mapping[str, Any]
"""A rule as JSON has it: `FaultRule`'s fields by name."""


class FaultRefused(ValueError):
    """A rule that makes no sense; the message is one line that says what to change."""


@dataclass(frozen=True)
class Subject:
    """What a rule looks at in a request. `topics` and `groups` are all that the request names."""

    api: str
    client_id: str
    topics: Collection[str]
    groups: Collection[str]


@dataclass(frozen=True)
class FaultRule:
    """One rule. Patterns are those of a shell: `orders`, `orders-*`, `*`; an empty one fits everything."""

    fault_id: int = 0
    apis: tuple[str, ...] = ()
    """APIs by Kafka's names, such as Produce; none means all."""
    topic: str = ""
    group: str = ""
    client_id: str = ""
    spared_client_id: str = ""
    """Clients that the rule leaves alone."""
    error: str = ""
    """Answer with this error code, by Kafka's name for it, in everything that was asked for."""
    drop: bool = False
    """Close the connection instead of answering."""
    hang: bool = False
    """Neither answer nor close."""
    delay_seconds: float = 0.0
    """Wait before doing the above or, without any of it, before doing the work."""
    after: bool = False
    """Do the work first."""
    times: int = 0
    """How many requests it happens to; 0: to all."""
    probability: float = 1.0
    """The chance with which it happens to a request that fits."""
    seed: int = 0
    """What the chance depends on: the same seed gives the same choices in the same order of requests."""
    tally: str = ""
    """The file that counts, shared by all gateways: a byte a hit. Without it each gateway counts by itself."""

    @property
    def error_code(self) -> ErrorCode:
        return ErrorCode[self.error.lower()]

    def fits(self, subject: Subject) -> bool:
        """Whether the rule is for such a request."""
        if self.apis and subject.api not in self.apis:
            return False
        if self.spared_client_id and fnmatchcase(subject.client_id, self.spared_client_id):
            return False
        return (
            (not self.client_id or fnmatchcase(subject.client_id, self.client_id))
            and (not self.topic or any(fnmatchcase(name, self.topic) for name in subject.topics))
            and (not self.group or any(fnmatchcase(name, self.group) for name in subject.groups))
        )


_TYPES: Final = get_type_hints(FaultRule)


def parse_rule(document: Document) -> FaultRule:
    """The rule that a JSON document says; raises FaultRefused."""
    unknown = sorted(set(document) - set(_TYPES))
    if unknown:
        raise FaultRefused(f"a fault has no field {unknown[0]!r}; it has {', '.join(_TYPES)}")
    values: dict[str, Any] = {name: _typed(name, value) for name, value in document.items()}
    values["apis"] = tuple(map(_api, values.get("apis", ())))
    values["error"] = _error(values.get("error", ""))
    rule = FaultRule(**values)
    _check(rule)
    return rule


def to_document(rule: FaultRule) -> Document:
    """The JSON document that `parse_rule` reads back as an equal rule."""
    return {**dataclasses.asdict(rule), "apis": list(rule.apis)}


def _typed(name: str, value: Any) -> Any:
    kind = _TYPES[name]
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if name == "apis":
        if isinstance(value, list | tuple) and all(isinstance(api, str) for api in value):
            return value
        raise FaultRefused("apis: expected a list of names such as Produce")
    if name == "error" and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if type(value) is not kind:
        raise FaultRefused(f"{name}={value!r}: expected {kind.__name__}")
    return value


def _api(name: str) -> str:
    wanted = name.replace("_", "").lower()
    for key in api_key_map:
        if api_name(key).lower() == wanted:
            return api_name(key)
    raise FaultRefused(f"{name!r} is no API of Kafka's: give a name such as Produce, Fetch or OffsetCommit")


def _error(name: str) -> str:
    if not name:
        return ""
    try:
        code = ErrorCode(int(name)) if name.lstrip("-").isdigit() else ErrorCode[name.lower()]
    except (KeyError, ValueError):
        raise FaultRefused(
            f"error={name}: no error code of Kafka's, such as NOT_LEADER_OR_FOLLOWER or 6"
        ) from None
    if code is ErrorCode.none:
        raise FaultRefused("error=NONE is no error: leave it out to let the request through after a delay")
    return code.name.upper()


def _check(rule: FaultRule) -> None:
    if sum((bool(rule.error), rule.drop, rule.hang)) > 1:
        raise FaultRefused("give one of error, drop and hang")
    if not (rule.error or rule.drop or rule.hang or rule.delay_seconds):
        raise FaultRefused("nothing would happen: give error, drop, hang or a delay")
    if not 0 <= rule.delay_seconds <= limits.FAULT_DELAY_SECONDS_MAX:
        raise FaultRefused(
            f"delay={rule.delay_seconds:g}: expected 0 to {limits.FAULT_DELAY_SECONDS_MAX:g} seconds"
        )
    if not 0 < rule.probability <= 1:
        raise FaultRefused(f"probability={rule.probability:g}: expected more than 0 and at most 1")
    if rule.times < 0:
        raise FaultRefused(f"times={rule.times}: expected 1 or more, or 0 for every time")
