"""`rhumb serve`: the service and its page."""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from rhumbline.cli.process import print_note, run_command
from rhumbline.errors import InputError, MissingExtra


def serve_command(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="The port; 0 takes a free one.")
    ] = 8400,
    data: Annotated[Path, typer.Option(help="The folder in which jobs are kept.")] = Path(
        "rhumb-jobs"
    ),
    token_file: Annotated[
        Path | None,
        typer.Option(help="A file with a token in each line; needed beyond this machine."),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="A checkpoint instead of the default one of its problem; repeatable."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, max=256, help="Processes that solve. [cores, at least 2]")
    ] = None,
    batch: Annotated[
        int, typer.Option(min=1, max=10_000, help="Most jobs that are solved together.")
    ] = 64,
    keep: Annotated[str, typer.Option(help="How long ended jobs are kept: 12h, 7d.")] = "7d",
) -> None:
    """Answer requests over HTTP: send instances, follow the search, fetch plans.

    The page at the same address shows plans and the latent space while they are searched.

    Example: rhumb serve --port 8400
    """

    def body() -> None:
        require_server()
        from rhumbline.serve.http.security import read_tokens
        from rhumbline.serve.http.server import Address, run_server
        from rhumbline.serve.policies import policies_by_problem
        from rhumbline.serve.settings import ServiceSettings, default_workers

        settings = ServiceSettings(
            data=data,
            workers=workers or default_workers(),
            policies=policies_by_problem(policy or ()),
            keep_seconds=parse_duration(keep),
            max_batch=batch,
        )
        tokens = read_tokens(token_file) if token_file else None
        address = Address(host, port)
        print_note(f"serving {address.url} with {settings.workers} workers; Ctrl-C ends it")
        run_server(settings, address, tokens)

    raise typer.Exit(run_command(body))


def require_server() -> None:
    """Raise unless the packages of the service are installed."""
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        needs = "the service needs starlette and uvicorn"
        raise MissingExtra(f"{needs}; get them with: pip install 'rhumbline[serve]'")


def parse_duration(text: str) -> float:
    """Return the number of seconds that a text such as 90s, 12h or 7d means."""
    unit_seconds = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
    found = re.fullmatch(r"(\d{1,6})([smhd])", text.strip())
    if not found:
        raise InputError(
            f"--keep is '{text[:20]}', expected a number with s, m, h or d, such as 7d"
        )
    count, unit = found.groups()
    seconds = unit_seconds[unit]
    return int(count) * seconds
