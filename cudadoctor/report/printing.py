"""From rich's parts to plain lines: the one console that every text for people is printed on."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable

from rich.console import Console, RenderableType

from cudadoctor.report.ink import Ink
from cudadoctor.report.options import RenderOptions


def printed(parts: Callable[[Ink], Iterable[RenderableType]], options: RenderOptions, least_width: int) -> str:
    """The parts as lines of at most `options.width` columns, and no fewer than `least_width`; '' where there are none.

    Words and commands that are longer than a line stay whole.
    """
    console = Console(
        file=io.StringIO(),
        width=max(options.width, least_width),
        force_terminal=options.colour,
        color_system="standard" if options.colour else None,
        no_color=not options.colour,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
        _environ={},
    )
    with console.capture() as capture:
        for part in parts(Ink(options.charset, console.width)):
            console.print(part)
    text = "\n".join(line.rstrip() for line in capture.get().splitlines()).strip("\n")
    return text + "\n" if text else ""
