"""The former name of `rhumbline.search.driver`; it goes with the next release."""

from rhumbline.search.driver import Budget, Progress, search, stream

__all__ = ["Budget", "Progress", "search", "stream"]
