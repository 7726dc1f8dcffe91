"""How the command line speaks of itself: commands listed by what they are for, and wrong usage told as every other error is."""

from __future__ import annotations

import sys
from typing import Any

import typer
import typer.core

from cudadoctor.exit_codes import ExitCode
from cudadoctor.saying import say

WRONG_USAGE: type[Exception] = next(kind for kind in reversed(typer.BadParameter.__mro__) if hasattr(kind, "format_message"))
"""The class of all errors that are told to the user: typer brings click's under a name of its own, or click's itself."""
DIAGNOSE, ASK, MEASURE, MANY = "Diagnose", "Ask", "Measure", "Many machines"


class Grouped(typer.core.TyperGroup):
    """Lists the commands in their groups, as `rich_help_panel` of each says, without loading rich."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one section a group; each command with the first sentence of its help, whole."""
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in (DIAGNOSE, ASK, MEASURE, MANY)}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                group = getattr(command, "rich_help_panel", None) or "Commands"
                groups.setdefault(str(group), []).append((name, command.get_short_help_str(limit=1000)))
        for group, rows in groups.items():
            if rows:
                with formatter.section(group):
                    formatter.write_dl(rows)

    def main(self, *args: Any, **options: Any) -> Any:
        """Run the command and end with its code; wrong usage is one line of what is wrong and one of what is right.

        Not in standalone mode, the code is returned and errors are raised.
        """
        standalone = options.pop("standalone_mode", True)
        options["standalone_mode"] = False
        if not standalone:
            return super().main(*args, **options)
        try:
            code = super().main(*args, **options)
        except typer.Abort:
            sys.exit(ExitCode.INTERRUPTED)
        except WRONG_USAGE as error:
            _say_usage(error)
            sys.exit(ExitCode.USAGE)
        sys.exit(code if isinstance(code, int) else ExitCode.OK)


def _say_usage(error: Any) -> None:
    context = getattr(error, "ctx", None)
    message = error.format_message()
    if context is not None and message == context.get_help():  # nothing was asked for: the help is the answer
        print(message, file=sys.stderr)
        return
    sentence = " ".join(message.split()).removesuffix(".")
    say(f"{sentence[:1].lower()}{sentence[1:]}")
    if context is None:
        return
    usage = " ".join(context.get_usage().split())
    print(f"{usage} ({context.command_path} --help says more)", file=sys.stderr)
