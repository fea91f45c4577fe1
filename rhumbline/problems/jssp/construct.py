"""A cheap schedule on the host: the job with most work remaining, without delay.

It is there before a network has run, for a search that is interrupted or out of time.
"""

from rhumbline.problems.jssp.dispatch_rules import dispatch
from rhumbline.problems.jssp.instance import JSSPInstance, Schedule


def construct_schedule(instance: JSSPInstance) -> Schedule:
    """Return the non-delay schedule by most work remaining."""
    return dispatch(instance, "mwkr", "non-delay")
