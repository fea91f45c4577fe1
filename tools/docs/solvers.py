"""The reference of local searches and solvers for `--then`."""

from importlib import import_module

from tools.docs.markdown import as_code, first_paragraph, make_table


def describe_solvers() -> str:
    """Return a table of what may follow a search."""
    from rhumbline.domains import DOMAINS
    from rhumbline.improvers import SOLVERS, solved_problems

    defaults = {domain.improver: name for name, domain in DOMAINS.working()}
    rows: list[tuple[str, ...]] = []
    for name, solver in SOLVERS.items():
        problems = ", ".join(solved_problems(name))
        default = f"; the default for {defaults[name]}" if name in defaults else ""
        text = first_paragraph(import_module(solver.module).__doc__)
        extra = f"`{solver.extra}` ({solver.package})"
        rows.append((as_code(name), problems, extra, f"{text.rstrip('.')}{default}."))
    return make_table(("solver", "problems", "extra", "what it is"), rows)
