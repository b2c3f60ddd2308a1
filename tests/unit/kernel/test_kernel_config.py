"""Settings: default, file, environment; one clear line for each mistake."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from barnabas.kernel.config import (
    ConfigError,
    check_address,
    check_addresses_of_others,
    load_config,
    other_settings,
    part_if,
    property_name,
    setting,
    settings_of,
    to_properties,
    unknown_variables,
    with_settings,
)


@dataclass(frozen=True)
class Example:
    node_id: int = setting(1, "An id.")
    log_dirs: tuple[str, ...] = setting(("a", "b"), "Some directories.")
    auto_create: bool = setting(True, "A switch.")
    ratio: float = setting(0.5, "A ratio.")
    name: str = setting("", "A name.")


def write(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "service.properties"
    path.write_text(text)
    return ["--config", str(path)]


def test_defaults_file_and_environment_in_that_order(tmp_path: Path) -> None:
    argv = write(tmp_path, "# a comment\nnode.id = 2\nname=file=with=signs\n\nauto.create=false\n")
    config = load_config(Example, argv, {"BARNABAS_NODE_ID": "3", "OTHER": "x"})
    assert config == Example(node_id=3, name="file=with=signs", auto_create=False)


def test_a_written_file_reads_back(tmp_path: Path) -> None:
    config = Example(node_id=7, log_dirs=("/x", "/y"), auto_create=False, ratio=0.25, name="n")
    assert load_config(Example, write(tmp_path, to_properties(config)), {}) == config


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nod.id=1", "unknown setting 'nod.id'"),
        ("node.id=one", "node.id=one: expected a number"),
        ("auto.create=maybe", "auto.create=maybe: expected true or false"),
        ("just words", "line 1: expected name=value"),
    ],
)
def test_mistakes_in_a_file(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load_config(Example, write(tmp_path, text), {})


@dataclass(frozen=True)
class Open:
    node_id: int = setting(1, "An id.")
    more: Mapping[str, str] = other_settings("Anything else.")


def test_settings_that_are_no_field(tmp_path: Path) -> None:
    argv = write(tmp_path, "node.id=2\nnum.partitions= 3\nmore=x\n")
    config = load_config(Open, argv, {"BARNABAS_MORE": "y"})
    assert config == Open(node_id=2, more={"num.partitions": "3", "more": "x"})
    assert load_config(Open, write(tmp_path, to_properties(config)), {}) == config
    assert settings_of(config) == {"node.id": "2", "num.partitions": "3", "more": "x"}


def _known() -> Collection[str]:
    return ("num.partitions", "log.retention.hours")


@dataclass(frozen=True)
class Known:
    node_id: int = setting(1, "An id.")
    more: Mapping[str, str] = other_settings("Anything else.", variables_for=_known)


def test_variables_set_what_is_no_field_too_and_win(tmp_path: Path) -> None:
    argv = write(tmp_path, "num.partitions=3\nother=x\n")
    environ = {"BARNABAS_NUM_PARTITIONS": "4", "BARNABAS_LOG_RETENTION_HOURS": "1", "BARNABAS_OTHER": "y"}
    config = load_config(Known, argv, environ)
    assert config == Known(more={"num.partitions": "4", "other": "x", "log.retention.hours": "1"})
    assert unknown_variables(Known, environ) == ["BARNABAS_OTHER"]


def test_variables_that_nobody_knows_are_told() -> None:
    environ = {
        "BARNABAS_NODE_ID": "2",
        "BARNABAS_NOD_ID": "2",
        "BARNABAS_ZOO": "",
        "HOME": "/",
        "_BARNABAS_COMPLETE": "x",
    }
    assert unknown_variables(Example, environ) == ["BARNABAS_NOD_ID", "BARNABAS_ZOO"]
    assert unknown_variables(Example, {"BARNABAS_NODE_ID": "2"}) == []


@pytest.mark.parametrize(
    "variable",
    [
        *("GATEWAY_SERVICE_HOST", "GATEWAY_SERVICE_PORT", "GATEWAY_SERVICE_PORT_KAFKA", "GATEWAY_PORT"),
        *("GATEWAY_PORT_9092_TCP", "GATEWAY_PORT_9092_TCP_PROTO", "GATEWAY_PORT_9092_TCP_ADDR"),
        *("SERVICE_HOST", "PORT", "PORT_9092_TCP_PORT", "BOOTSTRAP_SERVER", "VERSION"),
    ],
)
def test_variables_of_others_are_passed_over(variable: str) -> None:
    environ = {f"BARNABAS_{variable}": "tcp://10.0.0.1:9092"}
    assert unknown_variables(Known, environ) == []
    assert load_config(Known, [], environ) == Known()


def test_other_values_for_some_settings() -> None:
    changed = with_settings(
        Example(), {"node.id": "5", "log.dirs": "/x", "auto.create": "FALSE", "none": "1"}
    )
    assert changed == Example(node_id=5, log_dirs=("/x",), auto_create=False)
    assert with_settings(Open(more={"a": "1"}), {"b": "2"}) == Open(more={"a": "1", "b": "2"})
    with pytest.raises(ConfigError, match=r"node\.id=x: expected a number"):
        with_settings(Example(), {"node.id": "x"})


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ConfigError, match="cannot read the config file /nowhere/x"):
        load_config(Example, ["--config", "/nowhere/x"], {})


def test_a_wrong_command_line_is_one_line_of_the_program_that_was_started() -> None:
    with pytest.raises(
        ConfigError, match=r"^unrecognized arguments: foo: `python -m barnabas\.x --help` shows"
    ):
        load_config(Example, ["foo"], {}, program="python -m barnabas.x")


def test_property_names_are_kafkas() -> None:
    assert property_name("log_dirs") == "log.dirs"


@pytest.mark.parametrize("address", ["127.0.0.1:0", "[::1]:9092", "host.name:65535", "unix:/run/x.sock"])
def test_addresses(address: str) -> None:
    check_address("listen.address", address)


@pytest.mark.parametrize(
    "address", ["", "host", "host:", ":9092", "host:port", "host:65536", "host:-1", "unix:"]
)
def test_what_is_no_address_is_named(address: str) -> None:
    with pytest.raises(ConfigError, match=r"^listen\.address=.*: expected host:port or unix:/path$"):
        check_address("listen.address", address)


@dataclass(frozen=True)
class Following:
    controllers: tuple[str, ...] = setting((), "Where the controllers are.")
    advertised_address: str = setting("", "Where this service is.")


def test_addresses_of_others_are_checked() -> None:
    check_addresses_of_others(Following(("127.0.0.1:1", "unix:/x"), "host:2"))
    check_addresses_of_others(Following())
    check_addresses_of_others(Example())
    with pytest.raises(ConfigError, match=r"^controllers=127\.0\.0\.1: expected host:port"):
        check_addresses_of_others(Following(("127.0.0.1:1", "127.0.0.1")))
    with pytest.raises(ConfigError, match=r"^advertised\.address=host: expected host:port"):
        check_addresses_of_others(Following(advertised_address="host"))


@dataclass(frozen=True)
class First:
    shared_name: str = setting("", "Both have it.")
    own_number: int = setting(1, "Only the first has it.")


@dataclass(frozen=True)
class Second:
    shared_name: str = setting("", "Both have it.")
    other_number: int = setting(2, "Only the second has it.")
    others: Mapping[str, str] = other_settings("What nobody knows.")


@dataclass(frozen=True)
class Together:
    first: First
    second: Second


@dataclass(frozen=True)
class Strict:
    first: First


def test_each_part_of_a_process_takes_the_settings_that_it_knows(tmp_path: Path) -> None:
    file = tmp_path / "both.properties"
    file.write_text("shared.name=x\nown.number=5\nother.number=6\nunheard.of=7\n")
    environ = {"BARNABAS_OWN_NUMBER": "8"}
    together = load_config(Together, ["--config", str(file)], environ)
    assert unknown_variables(Together, environ) == []
    assert together == Together(First("x", 8), Second("x", 6, {"unheard.of": "7"}))
    assert load_config(Together, [], {}) == Together(First(), Second())
    file.write_text(to_properties(together))
    assert load_config(Together, ["--config", str(file)], {}) == together


def test_what_no_part_takes_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "strict.properties"
    file.write_text("unheard.of=7\n")
    with pytest.raises(ConfigError, match=r"unknown setting 'unheard.of'"):
        load_config(Strict, ["--config", str(file)], {})


@dataclass(frozen=True)
class Optional:
    second: Second
    first: First | None = part_if("own.number")  # noqa: RUF009


@pytest.mark.parametrize("by_variable", [False, True])
def test_a_part_is_there_if_its_setting_is(tmp_path: Path, by_variable: bool) -> None:
    file = tmp_path / "optional.properties"
    file.write_text("shared.name=x\n" + ("" if by_variable else "own.number=5\n"))
    environ = {"BARNABAS_OWN_NUMBER": "5"} if by_variable else {}
    config = load_config(Optional, ["--config", str(file)], environ)
    assert config == Optional(Second("x"), First("x", 5))
    assert unknown_variables(Optional, environ) == []
    file.write_text(to_properties(config))
    assert load_config(Optional, ["--config", str(file)], {}) == config


def test_without_its_setting_a_part_is_not_there(tmp_path: Path) -> None:
    file = tmp_path / "optional.properties"
    file.write_text("shared.name=x\nother.number=6\n")
    config = load_config(Optional, ["--config", str(file)], {})
    assert config == Optional(Second("x", 6))
    assert settings_of(config) == {"shared.name": "x", "other.number": "6"}


@pytest.mark.parametrize(
    ("line", "environ"),
    [
        ("own.number=", {}),
        ("", {"BARNABAS_OWN_NUMBER": ""}),
        ("own.number=5", {"BARNABAS_OWN_NUMBER": ""}),
    ],
)
def test_a_setting_that_is_empty_brings_no_part(tmp_path: Path, line: str, environ: dict[str, str]) -> None:
    """As where a template has nothing to put there."""
    file = tmp_path / "optional.properties"
    file.write_text(f"shared.name=x\n{line}\n")
    assert load_config(Optional, ["--config", str(file)], environ) == Optional(Second("x"))


@dataclass(frozen=True)
class TwoSettings:
    own_number: int = setting(1, "The part is there with it.")
    more_of_it: int = setting(2, "Only the part has it.")


@dataclass(frozen=True)
class MoreOptional:
    second: Second
    two: TwoSettings | None = part_if("own.number")  # noqa: RUF009


def test_settings_of_a_part_that_is_not_there_go_where_those_go_that_nobody_knows(tmp_path: Path) -> None:
    file = tmp_path / "optional.properties"
    file.write_text("more.of.it=7\n")
    config = load_config(MoreOptional, ["--config", str(file)], {})
    assert config == MoreOptional(Second(others={"more.of.it": "7"}))
