"""From objectives to Prometheus rules: recorded error ratios, the budget that is left, burn-rate alerts."""

from __future__ import annotations

from typing import Any

from generator.slos import BURNS, SLOS, WINDOWS, Burn, Slo

Rule = dict[str, Any]


def slo_groups(runbooks: str) -> list[dict[str, Any]]:
    """The rule groups of all objectives; `runbooks` is the address below which runbooks are."""
    return [
        {
            "name": f"slo-{slo.name.replace('_', '-')}",
            "rules": [*_recording_rules(slo), *(_alert(slo, burn, runbooks) for burn in BURNS)],
        }
        for slo in SLOS
    ]


def _recording_rules(slo: Slo) -> list[Rule]:
    selector = f'{{slo="{slo.name}"}}'
    labels = {"slo": slo.name}
    rules: list[Rule] = [
        {"record": "slo:total:rate5m", "expr": slo.total, "labels": labels},
        {"record": "slo:errors:rate5m", "expr": slo.errors, "labels": labels},
        {"record": "slo:objective:ratio", "expr": f"vector({slo.objective})", "labels": labels},
    ]
    for window in WINDOWS:
        errors, total = f"slo:errors:rate5m{selector}", f"slo:total:rate5m{selector}"
        if window != "5m":
            errors, total = f"sum_over_time({errors}[{window}])", f"sum_over_time({total}[{window}])"
        # Where nothing was asked for, nothing failed.
        expression = f"clamp_min({errors}, 0) / ({total} > 0)\n  or {total} * 0"
        rules.append({"record": f"slo:error_ratio:{window}", "expr": expression, "labels": labels})
    remaining = (
        f"1 - slo:error_ratio:30d{selector} / on (slo) group_left () (1 - slo:objective:ratio{selector})"
    )
    rules.append({"record": "slo:error_budget_remaining:ratio", "expr": remaining, "labels": labels})
    return rules


def _alert(slo: Slo, burn: Burn, runbooks: str) -> Rule:
    limit = f"{burn.factor:g} * {slo.budget:g}"
    selector = f'{{slo="{slo.name}"}}'
    return {
        "alert": slo.alert,
        "expr": f"slo:error_ratio:{burn.long}{selector} > {limit}\n"
        f"  and slo:error_ratio:{burn.short}{selector} > {limit}",
        "labels": {"severity": burn.severity, "slo": slo.name, "window": burn.long},
        "annotations": {
            "summary": f"{slo.title}: {{{{ $value | humanizePercentage }}}} are not, over {burn.long}. "
            f"The objective is {slo.objective:.5g} over 30 days; {burn.spent} of the budget went in this time.",
            "runbook_url": f"{runbooks}/{slo.runbook}.md",
        },
    }
