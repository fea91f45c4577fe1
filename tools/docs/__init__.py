"""Parts of the documentation that are generated from the code, and the Sphinx extension for them.

A page asks for a part by a comment, which a reader of the plain file does not see:

    <!-- generated: commands -->

`python -m tools.docs commands` prints a part; `make docs` builds the site.
"""

import re
from collections.abc import Callable
from importlib import import_module

GENERATED = re.compile(r"^<!-- generated: ([\w-]+) -->$", re.MULTILINE)

# The function behind each name; it returns Markdown.
PARTS = {
    "commands": "tools.docs.commands:describe_commands",
    "interface": "tools.docs.interface:describe_interface",
    "recipes": "tools.docs.recipes:describe_recipes",
    "recipe-keys": "tools.docs.recipes:describe_recipe_keys",
    "strategies": "tools.docs.strategies:describe_strategies",
    "solvers": "tools.docs.solvers:describe_solvers",
    "file-suffixes": "tools.docs.files:describe_suffixes",
    "exit-codes": "tools.docs.files:describe_exit_codes",
    "checkpoints": "tools.docs.files:describe_checkpoints",
    "overview": "tools.docs.links:overview",
    "contributing": "tools.docs.links:contributing",
    "changelog": "tools.docs.links:changelog",
    "domain-fields": "tools.docs.strategies:describe_domain_fields",
    "figure-radar": "tools.figures.notes:describe_radar",
    "figure-shift": "tools.figures.notes:describe_shift",
    "figure-curves-tsp": "tools.figures.notes:describe_tsp_curves",
    "figure-curves-cvrp": "tools.figures.notes:describe_cvrp_curves",
    "figure-curves-jssp": "tools.figures.notes:describe_jssp_curves",
    "figure-ablation": "tools.figures.notes:describe_ablation",
    "figure-landscapes": "tools.figures.notes:describe_landscapes",
    "figure-evolution": "tools.figures.notes:describe_evolution",
    "time-breakdown": "tools.figures.notes:describe_times",
}


def find_part(name: str) -> Callable[[], str]:
    """Return the function that generates a part."""
    module, _, function = PARTS[name].partition(":")
    return getattr(import_module(module), function)


def expand(text: str) -> str:
    """Return a page with every part that it asks for."""
    return GENERATED.sub(lambda match: find_part(match[1])(), text)
