"""The reference of file formats, exit codes and shipped checkpoints."""

from collections.abc import Iterator

from tools.docs.markdown import as_code, first_paragraph, make_table


def describe_suffixes() -> str:
    """Return a table of the suffixes that each problem reads and writes."""
    from rhumbline.domains import DOMAINS

    rows: list[tuple[str, str, str, str]] = []
    for name, domain in DOMAINS.working():
        files = domain.files
        read = ", ".join(as_code(suffix) for suffix in sorted(files.readers) if suffix)
        dataset = as_code(".safetensors") if files.dataset else ""
        rows.append((name, read, dataset, as_code(files.plan_suffix)))
    return make_table(("problem", "instances", "datasets", "plans"), rows)


def describe_exit_codes() -> str:
    """Return a table of the errors in Python with their exit codes."""
    rows = [
        (as_code(kind.__name__), str(kind.exit_code), first_paragraph(kind.__doc__))
        for kind in error_kinds()
    ]
    return make_table(("error", "exit code", "meaning"), rows)


def error_kinds() -> Iterator[type["Exception"]]:
    """Yield the errors that users can cause, from the general to the special."""
    from rhumbline.errors import RhumbError

    waiting: list[type[Exception]] = [RhumbError]
    while waiting:
        kind = waiting.pop(0)
        if kind.__module__ == "rhumbline.errors":
            yield kind
            waiting += kind.__subclasses__()


def describe_checkpoints() -> str:
    """Return a table of the policies that have a name."""
    from rhumbline.checkpoint import load_with_facts, shipped_checkpoints
    from rhumbline.checkpoint.shipped import RESEARCH_WEIGHTS
    from rhumbline.domains import DOMAINS, find_policy_family
    from rhumbline.policies import Members

    defaults = {domain.weights for _, domain in DOMAINS.working()}
    rows: list[tuple[str, ...]] = []
    for name, path in shipped_checkpoints().items():
        policy, facts = load_with_facts(path)
        _, family = find_policy_family(facts.problem)
        space = policy.space
        is_population = isinstance(space, Members)
        dimensions = policy.architecture.latent
        kind = f"latent space of {dimensions} dimensions" if dimensions else "single policy"
        kind = f"population of {space.count} decoders" if is_population else kind
        label = f"`{name}` (default)" if name in defaults else as_code(name)
        megabytes = path.stat().st_size / 1e6
        size = f"{facts.trained_at} {family.rules.size_unit}"
        extra = "`research`" if name in RESEARCH_WEIGHTS else ""
        rows.append((label, facts.problem, kind, size, f"{megabytes:.1f} MB", extra))
    return make_table(("name", "problem", "policy", "trained at", "size", "extra"), rows)
