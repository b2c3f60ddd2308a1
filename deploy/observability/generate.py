"""Write rules and dashboards anew: `python deploy/observability/generate.py [--runbooks URL] [--folder FOLDER]`.

The files are checked in; a test holds them to what this writes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Final

import yaml

HERE: Final = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from generator.cause_rules import cause_groups  # noqa: E402
from generator.slo_rules import slo_groups  # noqa: E402

RUNBOOKS: Final = "docs/runbooks"
"""Where runbooks are when nobody says it otherwise: their place in this repository."""

_NOTE: Final = "# Written by deploy/observability/generate.py: change generator/ and write it anew.\n"


class _Dumper(yaml.SafeDumper):
    """Queries of several lines as blocks, no line folded, no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def rule_files(runbooks: str) -> dict[str, str]:
    """The rules' files: path below this folder to text."""
    return {
        "rules/slo.yaml": _yaml({"groups": slo_groups(runbooks)}),
        "rules/causes.yaml": _yaml({"groups": cause_groups(runbooks)}),
    }


def dashboard_files() -> dict[str, str]:
    """The dashboards' files: path below this folder to text. Needs grafana-foundation-sdk."""
    from generator.dashboards import all_dashboards

    return {f"grafana/dashboards/{name}.json": text for name, text in all_dashboards().items()}


def all_files(runbooks: str = RUNBOOKS) -> dict[str, str]:
    return rule_files(runbooks) | dashboard_files()


def _yaml(document: dict[str, Any]) -> str:
    return _NOTE + yaml.dump(
        document, Dumper=_Dumper, sort_keys=False, width=10_000, default_flow_style=False
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runbooks", default=RUNBOOKS, help="the address below which the runbooks are")
    parser.add_argument("--folder", type=Path, default=HERE, help="where to write to")
    arguments = parser.parse_args()
    for name, text in all_files(arguments.runbooks).items():
        path = arguments.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
