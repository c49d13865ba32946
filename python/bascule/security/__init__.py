"""Authorization: policies, compiled to one table that both planes use.

Python reads a policy (`policy`: YAML; `casbin`: a Casbin model with its CSV) into rules, compiles them into a table
(`table`) and passes it to the data plane, which checks all calls that carry records. The methods of the control plane
are checked against the same table (`access`).
"""

from bascule._methods import ACTIONS
from bascule.security.access import Access
from bascule.security.policy import read_policy
from bascule.security.table import AccessTable, Grant, Resources, Rule, compile_rules

__all__ = ["ACTIONS", "Access", "AccessTable", "Grant", "Resources", "Rule", "compile_rules", "read_policy"]
