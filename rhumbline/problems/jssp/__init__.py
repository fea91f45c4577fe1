"""Job-shop scheduling: instances and schedules, and the rules of both kinds of policy."""

from rhumbline.problems.jssp.instance import (
    JSSPInstance,
    Operation,
    Schedule,
    jssp_from_arrays,
    jssp_from_tables,
)
from rhumbline.problems.jssp.machine_rules import JSSPMachines
from rhumbline.problems.jssp.rules import JSSP, JSSPBatch, JSSPState

__all__ = [
    "JSSP",
    "JSSPBatch",
    "JSSPInstance",
    "JSSPMachines",
    "JSSPState",
    "Operation",
    "Schedule",
    "jssp_from_arrays",
    "jssp_from_tables",
]
