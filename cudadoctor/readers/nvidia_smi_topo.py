"""Reads the matrix of `nvidia-smi topo -m`."""

from __future__ import annotations

import re
from itertools import takewhile

from cudadoctor.readers.reader import Reader, Values
from cudadoctor.readers.text import PlainText

_HEADER = re.compile(r"^\s{0,40}GPU0\s{1,20}(?:GPU1|[Cc]PU|NIC0|mlx)")
_AFFINITY = {"CPU", "NUMA", "GPU"}
_LINK = re.compile(r"X|NV\d{1,2}|SYS|NODE|PHB|PXB|PIX|SOC")
_COLUMN = re.compile(r"GPU\d{1,3}|NIC\d{1,3}|mlx\d{1,2}_(?:bond_)?\d{1,2}|[a-z][\w]{2,20}")
_TITLES = re.compile(r"CPU Affinity|NUMA Affinity|GPU NUMA ID")


def read_topo(text: PlainText) -> Values | None:
    """GPUs, NICs and their links: `GPU0     X      PIX     PHB     0-7,16-23` under a line of column names."""
    for position, line in enumerate(text.lines):
        if _HEADER.match(line):
            values = _matrix(line, text.lines[position + 1 :])
            if values:
                return values
    return None


def _matrix(header: str, lines: tuple[str, ...]) -> Values | None:
    titles = _TITLES.findall(header)
    columns = list(takewhile(_COLUMN.fullmatch, header.split()))
    links: dict[str, str] = {}
    cpus: dict[str, str] = {}
    numa: dict[str, str] = {}
    for line in lines:
        cells = line.split()
        if not cells or cells[0] not in columns or len(cells) < 2 or not _LINK.fullmatch(cells[1]):
            if cells and links:
                break
            continue
        label, row, rest = cells[0], cells[1 : len(columns) + 1], cells[len(columns) + 1 :]
        links |= _row_links(label, row, columns)
        if label.startswith("GPU"):
            cpus |= {label: rest[0]} if rest else {}
            numa |= {label: rest[1]} if len(rest) > 1 and "NUMA Affinity" in titles else {}
    if not links and len(columns) != 1:
        return None
    return {
        "gpus": [column for column in columns if column.startswith("GPU")],
        "nics": [column for column in columns if not column.startswith("GPU")],
        "links": links,
        "cpu_affinity": cpus,
        "numa_affinity": numa if "NUMA Affinity" in titles else None,
        "nvlink": any(link.startswith("NV") for link in links.values()),
    }


def _row_links(label: str, row: list[str], columns: list[str]) -> dict[str, str]:
    """The links from one row to the columns right of its own `X`."""
    own = columns.index(label)
    return {
        f"{label}-{column}": link
        for position, (column, link) in enumerate(zip(columns, row, strict=False))
        if position > own and _LINK.fullmatch(link)
    }


NVIDIA_SMI_TOPO = Reader("nvidia_smi_topo", ("GPU0",), read_topo)
