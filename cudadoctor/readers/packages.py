"""Reads package lists: dpkg, rpm, pacman, pip, uv, conda."""

from __future__ import annotations

import re

from cudadoctor.readers.reader import Reader, Values, unmarked
from cudadoctor.readers.text import PlainText

_DPKG = re.compile(
    r"^\s{0,8}(?P<state>ii|rc|hi|iU|iF|un|rH|pi) {1,4}(?P<name>[a-z0-9][\w.+-]{1,80}"
    r"(?::\w{2,10})?)\s{1,80}(?P<version>[\w.:+~-]{1,80})(?:\s|$)"
)
_RPM = re.compile(
    r"^\s{0,8}(?P<name>[A-Za-z][\w+.]{0,60}(?:-[A-Za-z][\w+.]{0,60}|-\d{1,2}(?=-\d)){0,8})-"
    r"(?P<version>(?:\d{1,3}:)?\d[\w.+~]{0,60}-\d[\w.+~]{0,60})\.(?P<arch>x86_64|i686|noarch"
    r"|aarch64)\s{0,4}$"
)
_DNF = re.compile(
    r"^\s{0,8}(?P<name>[A-Za-z][\w+.-]{1,80})\.(?P<arch>x86_64|i686|noarch|aarch64)\s{1,60}"
    r"(?P<version>(?:\d{1,3}:)?\d[\w.+~-]{1,80})(?:\s{1,40}@?\S{1,40})?\s{0,4}$"
)
_PACMAN = re.compile(
    r"^\s{0,8}(?:local/|extra/|core/)?(?P<name>[a-z0-9@_+][a-z0-9@._+-]{1,60}) (?P<version>"
    r"(?:\d:)?\d[\w.+:]{0,40}-\d{1,4}(?:\.\d{1,3})?)\s{0,4}$"
)
_PACMAN_NOTE = re.compile(r"^\s{0,8}(?P<names>[a-z0-9][a-z0-9._+& -]{2,100}): (?P<version>\d[\w.]{2,30}-\d{1,4})\s{0,4}$")
_GPU_PACKAGE = re.compile(
    r"nvidia|cuda|cudnn|nccl|nvml|libcu|tensorrt|nvinfer|rocm|hip|docker|containerd|mesa|linux-headers|fabricmanager|nouveau"
)


def read_system_packages(text: PlainText) -> Values | None:
    """Packages of the distribution; removed ones whose configuration is left (`rc`) are listed apart."""
    lines = unmarked(text)
    dpkg = [match for line in lines if (match := _DPKG.match(line))]
    if dpkg:
        return {
            "manager": "dpkg",
            "packages": {m["name"]: m["version"] for m in dpkg if m["state"] in ("ii", "hi", "iU", "iF")},
            "removed_with_config": [m["name"] for m in dpkg if m["state"] == "rc"],
        }
    for manager, pattern in (("rpm", _RPM), ("rpm", _DNF), ("pacman", _PACMAN), ("pacman", _PACMAN_NOTE)):
        found = [match for line in lines if (match := pattern.match(line))]
        packages = _named(found)
        if packages and any(_GPU_PACKAGE.search(name) for name in packages):
            return {"manager": manager, "packages": packages}
    return None


def _named(found: list[re.Match[str]]) -> dict[str, str]:
    packages: dict[str, str] = {}
    for match in found:
        names = re.split(r" & |, ", match["names"]) if "names" in match.groupdict() else [match["name"]]
        packages |= dict.fromkeys((name.strip() for name in names), match["version"])
    return packages


_CONDA = re.compile(
    r"^\s{0,8}(?P<name>[a-z_][\w.-]{1,60})\s{1,60}(?P<version>\d[\w.+!]{0,60}|\d{4}[\w.]{1,40})"
    r"(?:\s{1,60}(?P<build>[\w.+*-]{1,80}))?(?:\s{1,40}(?P<tag>\[[\w, ]{1,20}\]))?(?:\s{1,40}"
    r"(?P<channel>[\w./:<>-]{1,60}))?\s{0,8}$"
)
_CONDA_BUILD = re.compile(
    r"pypi_0|(?:\w{0,60}_)?\d{1,4}|py\w{2,60}(?:\.\w{1,60}){0,8}|cuda\w{0,20}|cpu\w{0,20}|main|mkl"
    r"|conda_forge|h[0-9a-f]{7}\w{0,20}|gpu|openblas|\w{1,20}_cuda\w{0,20}"
)
_PIP = re.compile(
    r"^[\s|]{0,16}(?:[-*] )?(?P<name>[A-Za-z][\w.-]{0,60})\s{0,60}(?:\||\s)\s{0,8}"
    r"(?P<version>\d[\w.+!-]{0,60})(?:\s{1,40}(?P<location>[/~A-Z]\S{1,200}))?[\s|]{0,16}$"
)
_FROZEN = re.compile(
    r"^\s{0,16}(?:[-*+#] {0,2})?(?P<name>[A-Za-z][\w.-]{0,60})(?:\[[\w,-]{1,40}\])?=="
    r"(?P<version>\d[\w.+!-]{0,60})\s{0,8}(?:;[^\n]{0,100})?$"
)
_COLON = re.compile(
    r"^\s{0,16}(?:[-*] )?(?P<name>torch|torchvision|torchaudio|flash[-_]attn|xformers|triton|vllm"
    r"|transformers|exllama\w{0,4}|bitsandbytes|numpy|deepspeed|tensorflow|jax|jaxlib|cupy[\w-]{0,12}"
    r"|onnxruntime(?:-gpu)?|accelerate|diffusers)(?: version)?:\s{1,4}"
    r"(?P<version>\d[\w.+-]{1,60})\s{0,8}$",
    re.IGNORECASE,
)
_SHOWN = re.compile(
    r"^[ |]{0,8}Name: (?P<name>[A-Za-z][\w.-]{0,60})[ \r]{0,4}\n[ |]{0,8}Version: (?P<version>\d[\w.+!-]{0,60})", re.MULTILINE
)
"""`pip show`: the name and version of each package in two lines."""
_SHOW_CUT = re.compile(
    r"pip3? show (?P<name>[A-Za-z][\w.-]{0,60})[ \r]{0,4}\|[^\n]{0,60}\n[ |]{0,8}Version: (?P<version>\d[\w.+!-]{0,60})"
)
"""`pip show NAME | grep Version`: the name stands in the command only."""
_NOT_A_PACKAGE = frozenset(
    {
        "version",
        "package",
        "release",
        "python",
        "cuda",
        "gpu",
        "driver",
        "level",
        "name",
        "id",
        "pid",
        "line",
        "file",
        "device",
        "step",
        "epoch",
        "cmake",
        "gcc",
    }
)
_BUILD_CUDA = re.compile(r"cuda(?P<version>\d{1,2}(?:\.\d{1,2})?)")


def read_python_packages(text: PlainText) -> Values | None:
    """`pip list` (also as `name==version`, or `pip show`) or `conda list`; the manager is told by the columns."""
    lines = unmarked(text) if "# packages in environment" not in text.body else text.lines
    is_conda = (
        "conda list" in text.body
        or "# packages in environment" in text.body
        or "pypi_0" in text.body
        or "mamba list" in text.body
    )
    conda = _conda_rows(lines, is_conda)
    if conda:
        return _conda_values(conda)
    is_list = any(words in text.body for words in ("pip list", "pip3 list", "pip freeze", "uv pip", "Package "))
    rows = (m for line in lines if (m := _FROZEN.match(line) or _PIP.match(line) or _COLON.match(line)))
    pip = {m["name"]: m["version"] for m in rows if is_list or m.re is not _PIP or "  " in m[0].strip() or "|" in m[0]}
    pip = {name: version for name, version in pip.items() if name.lower() not in _NOT_A_PACKAGE}
    pip |= {match["name"]: match["version"] for pattern in (_SHOWN, _SHOW_CUT) for match in pattern.finditer(text.body)}
    return {"manager": "pip", "packages": pip} if pip else None


def _conda_rows(lines: tuple[str, ...], is_conda: bool) -> list[re.Match[str]]:
    """Rows with a build string; without a heading or command that says conda, only where channel or build are conda's."""
    rows = [match for line in lines if not line.startswith(("#", "$")) and (match := _CONDA.match(line))]
    rows = [row for row in rows if row["name"] not in _NOT_A_PACKAGE and row["name"][0] != "."]
    if is_conda:
        return rows
    known = ("pytorch", "nvidia", "conda-forge", "defaults", "anaconda", "pypi")
    sure = [row for row in rows if row["build"] and row["channel"] in known and _CONDA_BUILD.fullmatch(row["build"])]
    return sure if len(sure) * 2 > len(rows) else []


def _conda_values(rows: list[re.Match[str]]) -> Values:
    packages = {row["name"]: {"version": row["version"], "build": row["build"], "channel": row["channel"]} for row in rows}
    values: Values = {"manager": "conda", "packages": packages}
    torch = packages.get("pytorch") or packages.get("libtorch")
    if torch and torch["build"]:
        cuda = _BUILD_CUDA.search(torch["build"])
        values["torch_variant"] = cuda[0] if cuda else "cpu" if "cpu" in torch["build"] else None
    return values


PACKAGES = Reader("packages", ("nvidia", "cuda", "cudnn", "docker"), read_system_packages)
PIP_CONDA_LIST = Reader(
    "pip_conda_list",
    (
        "==",
        " list",
        "Package ",
        "pypi",
        "nvidia-",
        "torch",
        "cudatoolkit",
        "numpy",
        "# packages in environment",
        "tensorflow",
        "jax",
        "cupy",
        "attn",
        "onnx",
    ),
    read_python_packages,
)
