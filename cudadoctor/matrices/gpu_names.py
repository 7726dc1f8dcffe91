"""Compares GPU names as people, catalogues and drivers write them.

A driver prints `NVIDIA GeForce RTX 4090 Laptop GPU`, a catalogue `GeForce RTX 4090 Mobile`, an old nvidia-smi
`GeForce RTX 409...`, a person `4090`.
"""

from __future__ import annotations

import re
from enum import Enum

_BRACKETS = re.compile(r"\((?:r|tm|c)\)|[®™]", re.IGNORECASE)
_SPELLINGS = (
    (re.compile(r"\blaptop gpu\b|\blaptop\b|\bnotebook\b"), "mobile"),
    (re.compile(r"\bwith max-q design\b|\bmax-q design\b"), "max-q"),
    (re.compile(r"\bserver edition\b"), "server"),
    (re.compile(r"\bworkstation edition\b"), ""),
    (re.compile(r"(\d)\s*gi?b\b"), r"\1gb"),
    (re.compile(r"\bmax-?q\b"), "maxq"),
)
_NOISE = frozenset({"nvidia", "corporation", "gpu", "tesla", "grid", "nvgpu", "generation", "edition"})
MAX_LENGTH = 120
"""Longest name that is looked at, in characters; NVML's buffer for names holds 96."""
_WORD = re.compile(r"[a-z0-9]+")


class Segment(Enum):
    """The market a product is made for, as its name tells it; decides what cuda-compat and the driver branches serve."""

    GEFORCE = "geforce"
    WORKSTATION = "workstation"
    DATA_CENTER = "data-center"
    JETSON = "jetson"
    UNKNOWN = "unknown"


_SEGMENTS = (
    (Segment.JETSON, re.compile(r"\b(jetson|drive|igx|tegra|orin|xavier|thor|switch)\b")),
    (Segment.GEFORCE, re.compile(r"\b(geforce|gtx|titan|cmp|rtx (?:20[5-8]0|30[5-9]0|40[5-9]0|50[5-9]0))\b|^p10[246]")),
    (Segment.WORKSTATION, re.compile(r"\b(quadro|nvs|rtx|t[4-9]00|t1[02]00)\b")),
    (
        Segment.DATA_CENTER,
        re.compile(
            r"\b(tesla|grid|[abhlv]\d{1,4}[a-z]?|gh200|gb[23]00|[kmp]\d{1,3}[a-z]{0,2}|t(4|4g|10|40)|rubin|vr\d+|ax800)\b"
        ),
    ),
)


def segment_of(name: str) -> Segment:
    """The market that a product name belongs to."""
    text = _BRACKETS.sub(" ", name[:MAX_LENGTH]).lower().removeprefix("nvidia ")
    return next((segment for segment, pattern in _SEGMENTS if pattern.search(text)), Segment.UNKNOWN)


def words(name: str) -> tuple[str, ...]:
    """The words of a name that tell products apart, in one spelling: `("geforce", "rtx", "4090", "mobile")`."""
    text = _BRACKETS.sub(" ", name[:MAX_LENGTH].lower())
    for pattern, spelling in _SPELLINGS:
        text = pattern.sub(spelling, text)
    found = tuple(_WORD.findall(text))
    return tuple(word for word in found if word not in _NOISE) or found


def is_shortened(name: str) -> bool:
    """Whether nvidia-smi has cut the name to fit its column (`NVIDIA GeForce RTX 308...`)."""
    return name.rstrip().endswith("...")


def holds_run(whole: tuple[str, ...], part: tuple[str, ...]) -> bool:
    """Whether the words of `part` follow each other somewhere in `whole`."""
    return any(whole[start : start + len(part)] == part for start in range(len(whole) - len(part) + 1))


def holds_in_order(whole: tuple[str, ...], part: tuple[str, ...]) -> bool:
    """Whether the words of `part` occur in `whole` in this order, others between them allowed."""
    rest = iter(whole)
    return all(word in rest for word in part)
