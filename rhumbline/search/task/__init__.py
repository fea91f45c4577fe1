"""Instances of one shape as a search sees them: their tensors, their account, and their pace."""

from rhumbline.search.task.account import Account, Spent
from rhumbline.search.task.make import enter_plans, make_task, set_warm_start
from rhumbline.search.task.task import Task

__all__ = ["Account", "Spent", "Task", "enter_plans", "make_task", "set_warm_start"]
