"""Finds product names of GPUs and boards in running text: `# GPU: RTX 3080`, `8x NVIDIA H100 80GB HBM3`, `Radeon RX 7900 XTX`."""

from __future__ import annotations

import re

from cudadoctor.readers.reader import Values, lines_with
from cudadoctor.readers.text import PlainText

_SUFFIX = (
    r"(?: ?(?:Ti|SUPER|Super|Laptop GPU|Max-Q|Mobile|D|Ada(?: Generation)?|Blackwell(?: (?:Workstation|Server|Max-Q) ?"
    r"(?:Workstation )?(?:Edition)?)?)){0,3}"
)
_DATA_CENTRE = (
    "GH200", "GB200", "GB300", "GB10", "H100", "H200", "H800", "H20", "B100", "B200", "B300", "A100", "A800", "A30", "A40",
    "A16", "A10G", "A10",
    "A2", "L40S", "L40", "L20", "L4", "V100S", "V100", "P100", "P40", "P4", "T4", "K80", "M60", "M40",
)  # fmt: skip
_NVIDIA = re.compile(
    r"(?<![\w/=:\\-])(?:(?P<count>\d{1,2}) ?[x\u00d7] ?)?(?P<name>(?:NVIDIA )?(?:"
    + r"(?:GeForce )?(?:RTX|GTX) ?\d{3,4}"
    + _SUFFIX
    + r"|GeForce (?:(?:MX|GT) ?)?\d{3,4}M?|RTX A\d{4}|RTX PRO \d{4}"
    + _SUFFIX
    + r"|Quadro (?:RTX |GV|GP|[KMPT])?\d{3,5}\w?|TITAN (?:RTX|Xp|X|V)"
    + r"|Tesla [A-Z]\d{1,3}\w?(?:-\w{3,12}(?:-\d{1,3}GB)?)?"
    + r"|Jetson (?:AGX |Orin |Xavier )?(?:Orin|Xavier|Nano|Thor|TX[12])(?: (?:NX|Nano|AGX|Super))?|(?<=NVIDIA )Thor"
    + r"|(?:" + "|".join(_DATA_CENTRE) + r")(?:[ -](?:SXM\d?|PCIe|PCIE|NVL|HBM\d\w?|\d{2,3} ?GB)){0,4}))(?![\w-])"
)  # fmt: skip
_NVIDIA_WORDS = (
    "nvidia",
    "geforce",
    "rtx",
    "gtx",
    "quadro",
    "titan",
    "tesla",
    "jetson",
    *(name.lower() for name in _DATA_CENTRE),
)
_AMD = re.compile(
    r"\b(?:AMD )?(?:Radeon(?: (?:RX|Pro|VII|Graphics))?(?: ?\w{1,8}){0,2}|Instinct MI\d{2,3}\w?"
    r"|RX ?[5-9]\d{3}(?: ?XTX?)?|gfx\d{3,4}\w?)\b"
)
_AMD_WORDS = ("radeon", "instinct", "rx ", "rx5", "rx6", "rx7", "rx9", "gfx")


def said_gpus(text: PlainText) -> Values:
    """NVIDIA products with their counts, and AMD's, each once; what is part of a path, an address or an image name is none."""
    found: dict[str, int] = {}
    for start, end in lines_with(text, _NVIDIA_WORDS):
        for match in _NVIDIA.finditer(text.flat, start, end):
            name = match["name"].strip()
            found[name] = max(found.get(name, 0), int(match["count"] or 1))
    amd = [match[0].strip() for start, end in lines_with(text, _AMD_WORDS) for match in _AMD.finditer(text.flat, start, end)]
    return {"gpus": [{"name": name, "count": count} for name, count in found.items()], "amd_gpus": list(dict.fromkeys(amd))}
