"""Which changes of broker settings are allowed while brokers run (KIP-226), and the rules between settings.

A broker of Apache Kafka answers INVALID_REQUEST to all that these rules refuse.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from barnabas.metadata.broker_settings import BROKER_SETTINGS, base_name, broker_setting
from barnabas.metadata.config_def import ConfigType, UpdateMode, split_list
from barnabas.metadata.validators import ConfigValue

if TYPE_CHECKING:
    from barnabas.kernel.errors import KafkaError

_THREADS: Final = (
    "background.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)
"""Numbers of threads, which may be at most doubled or halved at a time."""

_CLUSTER_WIDE_OF_LISTENERS: Final = ("max.connection.creation.rate", "max.connections", "num.network.threads")
"""A listener's own values of these can be set for all brokers; of the others only for one."""

_LEAST_MS: Final = {
    "log.roll.ms": 1,
    "log.roll.jitter.ms": 0,
    "log.flush.interval.ms": 0,
    "log.flush.scheduler.interval.ms": 0,
}
"""Settings without a least value of their own, that stand in for a topic setting which has one. Kafka refuses the last
two only when its logs read them.
"""

_STORE_BYTES_MIN: Final = 1024 * 1024
"""The least memory of compaction for each of its threads."""


def check_broker_changes(
    values: Mapping[str, str], broker_id: str, current: Mapping[str, ConfigValue] | None = None
) -> None:
    """Check what brokers are to have set while they run; `broker_id` is empty for the cluster-wide default.

    `current` are the values of today, by name, for rules that look at the step. Unknown names pass, as in Kafka:
    they may be a plug-in's. Raises KafkaError INVALID_REQUEST.
    """
    from barnabas.kernel.errors import ErrorCode, KafkaError  # slow to load; files are checked without it

    _refuse(
        (name for name in values if _is_read_only(name)),
        "Cannot update these configs dynamically: {}. They are read at start: set them there and restart.",
    )
    _refuse(
        (name for name in values if _is_store_of_certificates(name)),
        "These security configs can be dynamically updated only per-listener using the listener prefix: {}",
    )
    try:
        parsed = {name: broker_setting(name).parse(text) for name, text in values.items()}
        if not broker_id:
            _refuse(
                (name for name in values if _is_per_broker(name)),
                "Cannot update these configs at default cluster level, broker id must be specified: {}",
            )
        _check_classes(values)
        check_together(values)
    except KafkaError as error:
        raise KafkaError(ErrorCode.invalid_request, error.message) from error
    for name in _THREADS:
        problem = _step_problem(parsed.get(name), (current or {}).get(name))
        if problem:
            raise KafkaError(
                ErrorCode.invalid_request,
                f"Dynamic thread count update validation failed for {name}={values[name]}: {problem}.",
            )


def _check_classes(values: Mapping[str, str]) -> None:
    """Nothing can be plugged in, so all that a running broker finds are the classes it has anyway."""
    for name, text in values.items():
        definition = broker_setting(name)
        if definition.type is ConfigType.CLASS or name == "metric.reporters":
            for entry in split_list(text):
                if entry != definition.default:
                    raise _invalid(
                        f"Invalid value {text} for configuration {name}: Class {entry} could not be found."
                    )


def check_static_settings(values: Mapping[str, str]) -> None:
    """Check what a configuration file sets. Raises KafkaError INVALID_CONFIG for an unknown name or a bad value, and
    for an authorizer: whoever names one believes that somebody is kept out.
    """
    for name, text in values.items():
        definition = broker_setting(name)
        if definition.type is ConfigType.UNKNOWN:
            nearest = nearest_broker_setting(name)
            raise _invalid(
                f"Unknown broker setting {name}" + (f": did you mean {nearest}?" if nearest else ".")
            )
        definition.parse(text)
    if values.get("authorizer.class.name"):
        raise _invalid(
            "authorizer.class.name: there are no ACLs, everybody may do everything. Leave it out, and keep the cluster "
            "on a network that you trust."
        )
    check_together(values)


def nearest_broker_setting(name: str) -> str:
    """The known name that looks most like `name`; empty when none does."""
    from difflib import get_close_matches  # seldom needed

    close = get_close_matches(name, list(BROKER_SETTINGS), n=1, cutoff=0.6)
    return close[0] if close else ""


def check_together(values: Mapping[str, str]) -> None:
    """Check rules between settings, for names and texts that are valid by themselves. Raises INVALID_CONFIG."""

    def value(name: str) -> ConfigValue:
        definition = BROKER_SETTINGS[name]
        return definition.parse(values[name]) if name in values else definition.default_value()

    for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        kept = value(name)
        if isinstance(kept, int) and (kept == 0 or kept < -1):
            raise _invalid(f"{name}={kept}: it must be -1 for no limit, or at least 1.")
    for name, least in _LEAST_MS.items():
        given = value(name)
        if isinstance(given, int) and given < least:
            raise _invalid(f"{name}={given}: it must be at least {least}.")
    threads, memory = value("log.cleaner.threads"), value("log.cleaner.dedupe.buffer.size")
    assert isinstance(threads, int)
    assert isinstance(memory, int)
    if memory < max(threads, 1) * _STORE_BYTES_MIN:
        raise _invalid(
            f"log.cleaner.dedupe.buffer.size={memory}: it must be at least {_STORE_BYTES_MIN} for each of the "
            f"{threads} threads of log.cleaner.threads."
        )
    overrides = value("max.connections.per.ip.overrides")
    assert isinstance(overrides, str)
    for entry in filter(None, overrides.split(",")):
        host, _, count = entry.rpartition(":")
        if not host.strip() or not count.strip().isdecimal():
            raise _invalid(f"max.connections.per.ip.overrides has {entry!r}: expected host:count pairs.")
    if value("max.connections.per.ip") == 0 and not overrides:
        raise _invalid(
            "max.connections.per.ip=0: give max.connections.per.ip.overrides too, or nobody connects."
        )
    _check_listeners(value("listener.security.protocol.map"), value("listeners"))


def _check_listeners(protocols: ConfigValue, listeners: ConfigValue) -> None:
    assert isinstance(protocols, str)
    assert isinstance(listeners, tuple)
    names = set()
    for entry in filter(None, protocols.split(",")):
        name, _, protocol = entry.rpartition(":")
        if not name.strip() or protocol.strip().upper() not in _PROTOCOLS:
            raise _invalid(
                f"listener.security.protocol.map has {entry!r}: expected listener:protocol pairs, with "
                f"{', '.join(_PROTOCOLS)}."
            )
        names.add(name.strip().upper())
    for listener in listeners:
        name, separator, _ = listener.partition("://")
        if not separator:
            raise _invalid(f"listeners has {listener!r}: expected name://host:port.")
        if name.upper() not in names:
            raise _invalid(
                f"No security protocol defined for listener {name}: name it in listener.security.protocol.map."
            )


_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def is_dynamic(name: str) -> bool:
    """Whether Kafka shows the setting as one that can change; a listener's own never counts as such."""
    known = BROKER_SETTINGS.get(name)
    return known is not None and known.update_mode is not UpdateMode.READ_ONLY


def _is_read_only(name: str) -> bool:
    return name in BROKER_SETTINGS and not is_dynamic(name)


def _is_store_of_certificates(name: str) -> bool:
    is_store = name.startswith(("ssl.keystore.", "ssl.truststore.")) or name == "ssl.key.password"
    return is_store and name in BROKER_SETTINGS


def _is_per_broker(name: str) -> bool:
    base = base_name(name)
    if base != name:
        return base not in _CLUSTER_WIDE_OF_LISTENERS
    return name in BROKER_SETTINGS and BROKER_SETTINGS[name].update_mode is UpdateMode.PER_BROKER


def _step_problem(new: ConfigValue, old: ConfigValue) -> str:
    if not isinstance(new, int) or not isinstance(old, int):
        return ""
    if new > old * 2:
        return f"it may be at most twice the current value {old}"
    return f"it may be at least half the current value {old}" if new < old // 2 else ""


def _refuse(names: Iterable[str], message: str) -> None:
    from barnabas.kernel.errors import ErrorCode, KafkaError

    refused = list(names)
    if refused:
        raise KafkaError(ErrorCode.invalid_request, message.format(f"[{', '.join(refused)}]"))


def _invalid(message: str) -> KafkaError:
    from barnabas.kernel.errors import ErrorCode, KafkaError

    return KafkaError(ErrorCode.invalid_config, message)
