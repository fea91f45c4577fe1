"""The reference of the command line, from the parsers of its commands."""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tools.docs.markdown import as_code, make_table, mark_options


@dataclass(frozen=True)
class Option:
    """One option or argument of a command."""

    names: str  # with the value it takes, as in "--seconds S"
    help: str
    default: str = ""
    panel: str = ""  # the title under which the help lists it

    def row(self) -> tuple[str, str, str]:
        """Return the cells of the option in a table."""
        return as_code(self.names), mark_options(self.help), as_code(self.default)


@dataclass(frozen=True)
class Command:
    """A command with its description and its options."""

    name: str
    text: str
    options: Sequence[Option]

    def page(self) -> str:
        """Return the section of the command."""
        parts = [f"## rhumb {self.name}", *describe_text(self.text)]
        panels = dict.fromkeys(option.panel for option in self.options)
        for panel in panels:
            if panel:
                parts.append(f"{panel}:")
            rows = [option.row() for option in self.options if option.panel == panel]
            parts.append(make_table(("option", "effect", "default"), rows))
        return "\n\n".join(parts)


def describe_commands() -> str:
    """Return a section for each command."""
    return "\n\n".join(command.page() for command in all_commands())


def all_commands() -> Iterator[Command]:
    """Yield all commands in the order of the help."""
    from typer.main import get_command

    from rhumbline.cli.app import app
    from rhumbline.cli.commands.compare import make_parser
    from rhumbline.cli.commands.train import train_parser

    group: Any = get_command(app)
    for name, command in group.commands.items():
        if name == "train":  # it has a parser of its own, as `bench compare` has
            yield read_argparse(name, train_parser())
            continue
        yield read_typer(name, command)
        if name == "bench":
            yield read_argparse("bench compare", make_parser())


def read_typer(name: str, command: Any) -> Command:
    """Return a command that typer parses."""
    options = [read_typer_option(parameter) for parameter in command.params]
    return Command(name, command.help or "", options)


def read_typer_option(parameter: Any) -> Option:
    """Return an option or an argument that typer parses."""
    panel = parameter.rich_help_panel or ""
    if not parameter.opts[0].startswith("-"):
        name = parameter.metavar or parameter.name
        words = f"{name}..." if parameter.nargs == -1 else name
        return Option(words, parameter.help or "", panel=panel)
    value = "" if parameter.is_flag else parameter.metavar or "VALUE"
    names = f"{', '.join(parameter.opts)} {value}".strip()
    return Option(names, describe_range(parameter), default_text(parameter.default), panel)


def describe_range(parameter: Any) -> str:
    """Return the help of an option with the smallest and the largest number that it takes."""
    text = parameter.help or ""
    lowest = getattr(parameter, "min", None)
    highest = getattr(parameter, "max", None)
    if lowest is None or lowest == 0:
        return text
    if highest is None:
        return f"{text} At least {lowest}."
    return f"{text} From {lowest} to {highest}."


def default_text(default: Any) -> str:
    """Return a default value in words, "" for none."""
    if default is None or isinstance(default, bool) or default in ([], (), argparse.SUPPRESS):
        return ""
    return str(default)


def read_argparse(name: str, parser: argparse.ArgumentParser) -> Command:
    """Return a command that argparse parses."""
    options = [
        read_argparse_option(action)
        for action in parser._actions  # pyright: ignore[reportPrivateUsage]
        if not isinstance(action, argparse._HelpAction)  # pyright: ignore[reportPrivateUsage]
    ]
    text = f"{parser.description or ''}\n\n{parser.epilog or ''}"
    return Command(name, text, options)


def read_argparse_option(action: argparse.Action) -> Option:
    """Return an option or an argument that argparse parses."""
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest
    text = action.help or ""
    if not action.option_strings:
        return Option(metavar, text)
    value = "" if action.nargs == 0 else metavar
    names = ", ".join(action.option_strings)
    named = "[" in text  # the help says itself what the default is
    default = "" if named else default_text(action.default)
    return Option(f"{names} {value}".strip(), text, default)


def describe_text(text: str) -> Iterator[str]:
    """Yield the paragraphs of a description; examples become blocks of commands."""
    for paragraph in text.strip().split("\n\n"):
        words = " ".join(paragraph.split())
        if words.startswith("Example: "):
            yield f"```console\n$ {words.removeprefix('Example: ')}\n```"
        elif words.startswith("examples: "):
            commands = [f"$ {line.strip()}" for line in paragraph.strip().splitlines()[1:]]
            yield "\n".join(["```console", *commands, "```"])
        else:
            yield mark_options(words)
