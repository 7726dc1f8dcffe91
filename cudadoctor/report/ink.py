"""Rich texts made of inert values: nothing in a value is ever read as markup, a style or a control sequence."""

from __future__ import annotations

from dataclasses import dataclass

from rich.cells import cell_len
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cudadoctor.report import inert
from cudadoctor.report.marks import Mark
from cudadoctor.report.options import Charset

GAP = 2
"""Columns between the columns of a table."""


@dataclass(frozen=True, slots=True)
class Ink:
    """Writes for one charset and one width."""

    charset: Charset
    width: int

    def value(self, text: str, style: str = "", limit: int = inert.CELL_LIMIT) -> Text:
        """A value on one line."""
        return Text(inert.value(text, self.charset, limit), style=style)

    def paths(self, text: str, width: int, style: str = "") -> Text:
        """A value on lines of `width`, its longer paths broken before a slash."""
        return Text(_broken_at_slashes(inert.value(text, self.charset, inert.CELL_LIMIT), width), style=style)

    def prose(self, text: str, style: str = "") -> Text:
        """Sentences, to be wrapped."""
        return Text(inert.prose(text, self.charset), style=style)

    def mark(self, mark: Mark, words: str = "") -> Text:
        """A verdict's sign and its words."""
        text = Text(mark.sign(self.charset), style=f"bold {mark.colour}" if mark is not Mark.ABSENT else mark.colour)
        if words:
            text.append(" ")
            text.append(inert.value(words, self.charset, inert.CELL_LIMIT), style=mark.colour)
        return text

    def grid(self, gap: int = GAP) -> Table:
        """A table without lines."""
        return Table.grid(padding=(0, gap, 0, 0))

    def labelled(self, label: str, text: Text, indent: int = GAP, gap: int = GAP) -> Padding:
        """A label and, beside it, a text wrapped within its own column."""
        table = self.grid(gap)
        table.add_column(overflow="fold")
        table.add_column(overflow="fold")
        table.add_row(Text(label, style="bold"), text)
        return Padding(table, (0, 0, 0, indent))

    def flowing(self, parts: tuple[Text, ...], gap: str = "   ") -> list[Text]:
        """The parts side by side, a new line where the next one does not fit."""
        lines: list[Text] = []
        for part in parts:
            if lines and cell_len(lines[-1].plain) + len(gap) + cell_len(part.plain) <= self.width:
                lines[-1].append(gap).append_text(part)
            else:
                lines.append(part.copy())
        return lines


def _broken_at_slashes(text: str, width: int) -> str:
    words = []
    for whole in text.split(" "):
        word, lines = whole, []
        while len(word) > width and (slash := word.rfind("/", 1, width + 1)) > 0:
            lines.append(word[:slash])
            word = word[slash:]
        words.append("\n".join([*lines, word]))
    return " ".join(words)
