"""A report as a few lines of letters that survive tickets, mail and browsers, and back.

The lines are base64 without its padding: no quotes, no dashes, no indent and no line break carries meaning, so smart quotes,
re-wrapping, lost indentation and reply marks (`> `) change nothing. Length and checksum stand in the first line.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import html
import re
import textwrap
import zlib

from cudadoctor.model.codec import DocumentError, from_json, to_compact_json
from cudadoctor.model.report import Report

LINE_COLUMNS = 76
MAX_UNPACKED_BYTES = 64 * 2**20
"""A report larger than this is not one of ours: it is refused before it fills the memory."""

_GAP = r"[\s>|]+"
_BEGINS = re.compile(rf"cudadoctor{_GAP}report{_GAP}begins{_GAP}(\d{{1,9}}){_GAP}([0-9a-f]{{16}})\b")
_ENDS = re.compile(rf"cudadoctor{_GAP}report{_GAP}ends")
_NOT_DATA = re.compile(r"[^A-Za-z0-9+/]")


def pack(report: Report) -> str:
    """The block of lines that holds the report."""
    packed = zlib.compress(to_compact_json(report), 9)
    letters = base64.b64encode(packed).decode().rstrip("=")
    lines = textwrap.wrap(letters, LINE_COLUMNS, break_on_hyphens=False)
    return "\n".join((f"cudadoctor report begins {len(letters)} {_checksum(letters)}", *lines, "cudadoctor report ends"))


def extract_report(text: str) -> Report | None:
    """The first whole report packed in a text; None where there is none, or none that arrived undamaged."""
    for part in _ENDS.split(text)[:-1]:
        begins = list(_BEGINS.finditer(part))
        if begins:
            report = _checked(begins[-1][1], begins[-1][2], part[begins[-1].end() :])
            if report is not None:
                return report
    return None


def _checked(length: str, checksum: str, body: str) -> Report | None:
    letters = _NOT_DATA.sub("", html.unescape(body))
    return _unpacked(letters) if len(letters) == int(length) and _checksum(letters) == checksum else None


def _checksum(letters: str) -> str:
    return hashlib.sha256(letters.encode()).hexdigest()[:16]


def _unpacked(letters: str) -> Report | None:
    try:
        packed = base64.b64decode(letters + "=" * (-len(letters) % 4))
        stream = zlib.decompressobj()
        data = stream.decompress(packed, MAX_UNPACKED_BYTES)
        return from_json(data, Report) if stream.eof else None
    except (binascii.Error, zlib.error, DocumentError):
        return None
