"""How a report is to be shown; nothing here changes what it says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum


class Detail(IntEnum):
    """How much to show: `-q`, nothing, `-v`, `-vv`."""

    FINDINGS = 0
    NORMAL = 1
    EVIDENCE = 2
    PROBE_RUNS = 3


class Charset(Enum):
    """Which characters the stream can carry."""

    UNICODE = "unicode"
    ASCII = "ascii"

    @classmethod
    def of_encoding(cls, encoding: str | None) -> Charset:
        """The charset for a stream's encoding; ASCII unless it is some spelling of UTF-8 or UTF-16."""
        return (
            cls.UNICODE if (encoding or "").lower().replace("-", "").replace("_", "").startswith(("utf8", "utf16")) else cls.ASCII
        )


@dataclass(frozen=True, slots=True)
class JudgedFile:
    """The file whose text was judged (a Dockerfile, a pasted log), for formats that point at lines."""

    path: str
    """Relative to the checkout, `/` between folders."""
    source: str = ""
    """The evidence's name for it; empty where every line number in the evidence is one of this file."""


@dataclass(frozen=True, slots=True)
class RenderOptions:
    """Width in columns, colour, charset and amount; each renderer uses what applies to it."""

    width: int = 100
    colour: bool = False
    charset: Charset = Charset.UNICODE
    detail: Detail = Detail.NORMAL
    judged: JudgedFile | None = None
