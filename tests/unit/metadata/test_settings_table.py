"""Tables of settings are read when somebody asks for them."""

from __future__ import annotations

import subprocess
import sys

from barnabas.metadata.broker_settings import AREAS, BROKER_SETTINGS
from barnabas.metadata.settings_table import SettingsTable, rows_of


def test_a_table_is_the_rows_of_its_modules_in_the_order_of_names() -> None:
    table = SettingsTable(["cluster", "network"], with_effect={"num.partitions"}, internal={"node.id"})
    names = [row[0] for module in ("cluster", "network") for row in rows_of(module)]
    assert list(table) == sorted(names)
    assert len(table) == len(names)
    assert (table["num.partitions"].has_effect, table["num.io.threads"].has_effect) == (True, False)
    assert (table["node.id"].internal, "log.dirs" in table) == (True, False)


def test_every_row_is_in_the_table_of_brokers() -> None:
    assert sum(len(rows_of(module)) for module in AREAS) == len(BROKER_SETTINGS)


def test_a_service_starts_without_most_of_them() -> None:
    script = (
        "import sys, barnabas.metadata.effective as effective\n"
        "from barnabas.metadata.image import MetadataImage\n"
        "effective.effective_broker_setting(MetadataImage(), 'auto.create.topics.enable')\n"
        "print(*(name for name in sys.modules if name.startswith('barnabas.metadata.settings.')))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    read = {name.rpartition(".")[2] for name in done.stdout.split()}
    assert read == {"cluster", "effects", "row", "topic_level"}
