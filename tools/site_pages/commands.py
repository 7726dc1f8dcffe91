"""The reference of the command line: the help of every command, as Typer holds it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer.main

from cudadoctor.cli import app
from site_pages.markdown import block, code, prose


def pages() -> Iterator[tuple[str, str]]:
    """The path of each page within the site, without suffix, and its Markdown."""
    root = typer.main.get_command(app)
    context: Any = root.make_context("cudadoctor", [], resilient_parsing=True)
    intro = "Made from the help of each command: `cudadoctor COMMAND --help` prints the same."
    sections = [
        part for name in root.list_commands(context) for part in _sections(root.get_command(context, name), name, context)
    ]
    yield "reference/commands", "\n\n".join(["# Commands", intro, *sections, "## Exit codes", prose(root.epilog)]) + "\n"


def _sections(command: Any, name: str, parent: Any) -> list[str]:
    """A command, or each command of a group."""
    context = command.make_context(name, [], parent=parent, resilient_parsing=True)
    if hasattr(command, "list_commands"):
        inner = ((each, command.get_command(context, each)) for each in command.list_commands(context))
        return [part for each, sub in inner for part in _sections(sub, each, context)]
    usage = command.get_usage(context).removeprefix("Usage: ")
    title = context.command_path.removeprefix("cudadoctor ")
    arguments = [_entry(each.make_metavar(context), each.help) for each in command.params if each.param_type_name == "argument"]
    records = [each.get_help_record(context) for each in command.params if each.param_type_name == "option"]
    options = [_entry(*record) for record in records if record is not None]
    return [
        f"## {title}",
        prose(command.help),
        block(" ".join(usage.split())),
        *arguments,
        *options,
    ]


def _entry(name: str, text: str | None) -> str:
    """An argument or option, and below it what it does."""
    return f"{code(name)}\n: {prose(' '.join((text or '').split()))}"
