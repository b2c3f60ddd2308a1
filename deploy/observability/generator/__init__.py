"""Recording rules, alerts and dashboards, written from what this package says; see docs/observability.md."""
