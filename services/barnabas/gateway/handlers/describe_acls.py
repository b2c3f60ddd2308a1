"""DescribeAcls (key 29): which ACLs there are; none."""

from __future__ import annotations

from barnabas.gateway.answers.without_authorizer import handler_without_authorizer

HANDLER = handler_without_authorizer(29)
