"""Casbin models that several tests use."""

from typing import Final

EXACT_MODEL: Final = """
[request_definition]
r = sub, obj, act

[policy_definition]
p = sub, obj, act

[policy_effect]
e = some(where (p.eft == allow))

[matchers]
m = r.sub == p.sub && r.obj == p.obj && r.act == p.act
"""
"""Exact matches only: no roles, no wildcards."""
