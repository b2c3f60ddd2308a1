"""One frozen dataclass per service, filled from defaults, a properties file and the environment.

A service declares its settings as dataclass fields made with `setting`; only its `__main__` calls
`load_config`. Later sources win: default, then `--config FILE` (Kafka's properties format, `node.id=1`), then
environment variables (`BARNABAS_NODE_ID=1`). A field `node_id` is the setting `node.id`. A field made with
`other_settings` takes what is set beyond the fields, for a service that knows such names from elsewhere. A process
that hosts several services has a dataclass of their dataclasses: each takes the settings that it knows; one that is not
always hosted (`part_if`) takes none where it is not.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NoReturn, TypeVar, get_args, get_type_hints

from barnabas.kernel.variables import ENVIRONMENT_PREFIX, is_of_others, variable_of

PORT_MAX: Final = 65_535

ConfigT = TypeVar("ConfigT")

# What settings mean that every service has.
HTTP_ADDRESS_HELP: Final = "Where /metrics, /healthz and /readyz are; empty for nowhere."
LOG_LEVEL_HELP: Final = "The least severe log lines to keep: DEBUG, INFO, WARNING or ERROR."
LOG_FORMAT_HELP: Final = "How log lines look: text for people or json for collectors."
MOVABLE_CLOCK_FILE_HELP: Final = (
    "For tests: a file that says how far the clock is ahead. With it /clock moves the clock: never for a cluster "
    "that matters."
)


class ConfigError(Exception):
    """A setting that cannot be used; the message names it and says what to change."""


def setting(default: Any, help_text: str, *, unit: str = "") -> Any:
    """A dataclass field for one setting: its default, a sentence for the reference, and its unit if it has one."""
    return dataclasses.field(default=default, metadata={"help": help_text, "unit": unit})


def other_settings(help_text: str, *, variables_for: Callable[[], Collection[str]] = tuple) -> Any:
    """A dataclass field for the settings that are no field: name to text; the dataclass checks them.

    A file may set any; of the environment's those in `variables_for()`, which is asked only when it is needed.
    """
    metadata = {"help": help_text, "others": True, "variables_for": variables_for}
    return dataclasses.field(default_factory=dict, metadata=metadata)


def part_if(setting_name: str) -> Any:
    """A dataclass field for the config of a service that the process hosts if this setting says so, by being set to
    something: a variable that is there and empty says no, as does a line of a file."""
    return dataclasses.field(default=None, metadata={"part_if": setting_name})


def property_name(field_name: str) -> str:
    """The setting's name in a properties file and in the documentation: `node_id` -> `node.id`."""
    return field_name.replace("_", ".")


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong, as everything else here does."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}: `{self.prog} --help` shows what there is")


def load_config(
    config_type: type[ConfigT],
    argv: Sequence[str],
    environ: Mapping[str, str] | None = None,
    *,
    program: str = "",
) -> ConfigT:
    """Build `config_type` for the command line `argv` (without the program's name, which is `program`).

    Raises ConfigError for an unknown setting, a value of the wrong type, or a file that cannot be read.
    """
    parser = _Parser(
        prog=program or None,
        description=f"Settings come from --config FILE and {ENVIRONMENT_PREFIX}* variables.",
    )
    parser.add_argument("--config", metavar="FILE", help="a properties file: one name=value a line")
    arguments = parser.parse_args(argv)
    environ = os.environ if environ is None else environ
    from_file = _read_properties(arguments.config) if arguments.config else {}
    parts: dict[str, type[Any]] = {}
    unhosted: set[str] = set()
    for name, (part, needed) in _parts(config_type).items():
        if not needed or environ.get(variable_of(needed), from_file.get(needed, "")):
            parts[name] = part
        else:
            unhosted.add(needed)
    from_environment, _ = _settings_of_environment(tuple(parts.values()) or (config_type,), environ)
    said = {name: text for name, text in {**from_file, **from_environment}.items() if name not in unhosted}
    if not parts:
        return _build(config_type, said, arguments.config)
    known = {name for part in parts.values() for name in _field_names(part)}
    built = {}
    for field_name, part in parts.items():
        own = _field_names(part)
        # A name that no part has goes to the one that takes others, or is refused by all.
        takes_rest = bool(_others_field(part)) or not any(_others_field(each) for each in parts.values())
        theirs = {
            name: text for name, text in said.items() if name in own or (takes_rest and name not in known)
        }
        built[field_name] = _build(part, theirs, arguments.config)
    return config_type(**built)


def unknown_variables(config_type: type[Any], environ: Mapping[str, str] | None = None) -> list[str]:
    """The variables that look like settings, and are none of `config_type` nor known to be somebody else's."""
    parts = tuple(part for part, _ in _parts(config_type).values()) or (config_type,)
    return _settings_of_environment(parts, os.environ if environ is None else environ)[1]


def _settings_of_environment(
    parts: Collection[type[Any]], environ: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """What the variables set for `parts`, by the settings' names, and the variables that nobody knows."""
    names = {variable_of(name): name for part in parts for name in _field_names(part)}
    ours = {variable: text for variable, text in environ.items() if variable.startswith(ENVIRONMENT_PREFIX)}
    if any(variable not in names and not is_of_others(variable) for variable in ours):
        names = {variable_of(name): name for part in parts for name in _other_names(part)} | names
    known = {names[variable]: text for variable, text in ours.items() if variable in names}
    return known, sorted(each for each in ours if each not in names and not is_of_others(each))


def _build(config_type: type[ConfigT], said: Mapping[str, str], source: str) -> ConfigT:
    """One service's config from what a file and the environment say; only the file, `source`, may name unknown ones."""
    values: dict[str, Any] = {}
    others: dict[str, str] = {}
    rest = _others_field(config_type)
    for name, text in said.items():
        field_name = _field_name(config_type, name, source)
        if field_name is None:
            others[name] = text
        else:
            values[field_name] = text
    types = get_type_hints(config_type)
    parsed = {name: _parse(name, text, types[name]) for name, text in values.items()}
    if rest:
        parsed[rest] = others
    try:
        return config_type(**parsed)
    except ConfigError as error:
        # Only a file can name what nobody knows.
        unknown = others.keys() - _other_names(config_type) if source else ()
        if any(name in str(error) for name in unknown):
            raise ConfigError(f"{source}: {error}") from error
        raise


def _parts(config_type: type[Any]) -> dict[str, tuple[type[Any], str]]:
    """The services' configs that `config_type` is made of, by field, each with the setting that it needs to be hosted,
    if any; empty for a service's own.
    """
    types = get_type_hints(config_type)
    found = {}
    for field in dataclasses.fields(config_type):
        # `Part` or `Part | None`
        kinds = [each for each in (types[field.name], *get_args(types[field.name])) if each is not None]
        for part in filter(dataclasses.is_dataclass, kinds):
            assert isinstance(part, type), "a field has a type"
            found[field.name] = part, field.metadata.get("part_if", "")
    return found


def _field_names(config_type: type[Any]) -> set[str]:
    """The names of a config's own settings."""
    rest = _others_field(config_type)
    return {property_name(field.name) for field in dataclasses.fields(config_type) if field.name != rest}


def _other_names(config_type: type[Any]) -> Collection[str]:
    """The settings that are no field and that variables may set."""
    fields = dataclasses.fields(config_type)
    return next((field.metadata["variables_for"]() for field in fields if field.metadata.get("others")), ())


def check_address(name: str, address: str) -> None:
    """Raise ConfigError unless `address`, the value of setting `name`, is host:port or unix:/path."""
    if address.startswith("unix:"):
        if address != "unix:":
            return
    else:
        host, _, port = address.rpartition(":")
        if host and port.isascii() and port.isdigit() and int(port) <= PORT_MAX:
            return
    raise ConfigError(f"{name}={address}: expected host:port or unix:/path")


def check_addresses_of_others(config: object) -> None:
    """Raise ConfigError for a wrong address among those settings of a service that say where others are, or find it."""
    for name in ("controllers", "advertised_address"):
        value = getattr(config, name, ())
        for address in (value,) if isinstance(value, str) else value:
            if address:
                check_address(property_name(name), address)


def to_properties(config: object) -> str:
    """The text of a properties file that `load_config` reads back as an equal config."""
    return "".join(f"{name}={text}\n" for name, text in settings_of(config).items())


def settings_of(config: object) -> dict[str, str]:
    """Every setting of `config` by its name in a properties file, as text."""
    settings: dict[str, str] = {}
    for field in dataclasses.fields(config):  # type: ignore[arg-type]
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            settings.update(settings_of(value))
        elif "part_if" in field.metadata:
            continue  # it is not hosted
        elif field.metadata.get("others"):
            settings.update(value)
        else:
            text = ",".join(value) if isinstance(value, tuple) else str(value)
            settings[property_name(field.name)] = text.lower() if isinstance(value, bool) else text
    return settings


def with_settings(config: ConfigT, settings: Mapping[str, str]) -> ConfigT:
    """`config` with other values for the settings that it has; those that it has not are left out, or are for the
    field made with `other_settings`. Raises ConfigError."""
    config_type = type(config)
    rest, types = _others_field(config_type), get_type_hints(config_type)
    changed: dict[str, Any] = {}
    others: dict[str, str] = {}
    names = {property_name(field.name): field.name for field in dataclasses.fields(config_type)}  # type: ignore[arg-type]
    for name, text in settings.items():
        if name in names:
            changed[names[name]] = _parse(names[name], text, types[names[name]])
        else:
            others[name] = text
    if rest:
        changed[rest] = {**getattr(config, rest), **others}
    return dataclasses.replace(config, **changed)  # type: ignore[type-var]


def _others_field(config_type: type[Any]) -> str:
    """The name of the field made with `other_settings`; empty when there is none."""
    fields = dataclasses.fields(config_type)
    return next((field.name for field in fields if field.metadata.get("others")), "")


def _field_name(config_type: type[Any], name: str, source: str) -> str | None:
    """The field that a setting fills; None when it is for the field made with `other_settings`."""
    rest = _others_field(config_type)
    known = {
        property_name(field.name): field.name
        for field in dataclasses.fields(config_type)
        if field.name != rest
    }
    if name in known:
        return known[name]
    if not rest:
        raise ConfigError(f"{source}: unknown setting {name!r}; known ones: {', '.join(sorted(known))}")
    return None


def _read_properties(path: str) -> dict[str, str]:
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError as error:
        raise ConfigError(f"cannot read the config file {path}: {error.strerror}") from error
    values = {}
    for number, line in enumerate(lines, start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith(("#", "!")):
            continue
        name, separator, value = stripped.partition("=")
        if not separator:
            raise ConfigError(f"{path}, line {number}: expected name=value, found {stripped!r}")
        values[name.strip()] = value.strip()
    return values


def _parse(name: str, text: str, kind: object) -> Any:
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.strip().lower()]
        if kind is int:
            return int(text)
        if kind is float:
            return float(text)
    except (ValueError, KeyError) as error:
        expected = "true or false" if kind is bool else "a number"
        raise ConfigError(f"{property_name(name)}={text}: expected {expected}") from error
    if kind == tuple[str, ...]:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    assert kind is str, f"setting {name} has the unsupported type {kind}"
    return text
