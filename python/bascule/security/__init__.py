"""What clients may do: policies, compiled to one table that both planes decide by.

Python reads a policy (`policy`: ours in YAML; `casbin`: a Casbin model with its CSV) into rules, compiles them into a
table (`table`) and hands it to the data plane, which checks every call that carries records by itself. The methods that
the control plane answers ask the same table (`access`).
"""

from bascule.security.access import Access
from bascule.security.actions import ACTIONS
from bascule.security.policy import read_policy
from bascule.security.table import AccessTable, Grant, Resources, Rule, compile_rules

__all__ = ["ACTIONS", "Access", "AccessTable", "Grant", "Resources", "Rule", "compile_rules", "read_policy"]
