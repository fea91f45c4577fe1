"""Job-shop scheduling: instances and schedules, and the rules of each kind of policy."""

from rhumbline.problems.jssp.instance import (
    JSSPInstance,
    Operation,
    Schedule,
    jssp_from_arrays,
    jssp_from_tables,
)
from rhumbline.problems.jssp.left_shift_rules import JSSPLeftShift
from rhumbline.problems.jssp.machine_rules import JSSPMachines
from rhumbline.problems.jssp.rules import JSSP, JSSPBatch, JSSPState

__all__ = [
    "JSSP",
    "JSSPBatch",
    "JSSPInstance",
    "JSSPLeftShift",
    "JSSPMachines",
    "JSSPState",
    "Operation",
    "Schedule",
    "jssp_from_arrays",
    "jssp_from_tables",
]
