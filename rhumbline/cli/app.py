"""The commands together. Importing this loads neither torch nor numpy, so that help is quick."""

from typing import Annotated

import typer

from rhumbline import __version__
from rhumbline.cli.commands.bench import bench_command
from rhumbline.cli.commands.check import check_command
from rhumbline.cli.commands.info import info_command
from rhumbline.cli.commands.merge import merge_command
from rhumbline.cli.commands.report import report_command
from rhumbline.cli.commands.sample import sample_command
from rhumbline.cli.commands.serve import serve_command
from rhumbline.cli.commands.solve import solve_command
from rhumbline.cli.options import flag


def show_version(wanted: bool) -> None:
    """Print the version and exit."""
    if wanted:
        typer.echo(f"rhumbline {__version__}")
        raise typer.Exit


Version = Annotated[
    bool, flag("--version", "Print the version and leave.", callback=show_version, is_eager=True)
]


def rhumb(version: Version = False) -> None:
    """Solve travelling salesman, vehicle routing and job-shop instances by searching a space of
    learned policies.

    Example: rhumb solve examples/harbour100.tsp --seconds 10
    """


def train_command(context: typer.Context) -> None:
    """Train a policy by a recipe. `rhumb train --help` tells more.

    Example: rhumb train recipes/tsp100.toml --minutes 30
    """
    from rhumbline.cli.commands.train import run_train

    raise typer.Exit(run_train(context.args))


app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
app.callback()(rhumb)
app.command("solve")(solve_command)
app.command(
    "train",  # it has a parser of its own
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    add_help_option=False,
)(train_command)
app.command("merge")(merge_command)
app.command("check")(check_command)
app.command("sample")(sample_command)
app.command("info")(info_command)
app.command("bench")(bench_command)
app.command("report")(report_command)
app.command("serve")(serve_command)
