"""CreateAcls (key 30): each ACL is refused."""

from __future__ import annotations

from barnabas.gateway.answers.without_authorizer import handler_without_authorizer

HANDLER = handler_without_authorizer(30)
