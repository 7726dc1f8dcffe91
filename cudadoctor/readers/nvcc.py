"""Reads `nvcc --version`, `which nvcc`, `where nvcc` and `update-alternatives --display cuda`."""

from __future__ import annotations

import re

from cudadoctor.readers.reader import Reader, Values, unmarked
from cudadoctor.readers.text import PlainText

_RELEASE = re.compile(r"release\s{1,3}(?P<release>\d{1,3}\.\d{1,3}),\s{1,3}[Vv](?P<version>\d{1,3}\.\d{1,3}(?:\.\d{1,9}){0,2})")
_BUILD = re.compile(r"\bBuild (cuda_[\w./+-]{1,80})")
_WINDOWS_PATH = re.compile(r"^\s{0,16}([A-Za-z]:\\[^\n:*?\"<>|]{1,200}\\nvcc(?:\.exe)?)\s{0,4}$", re.MULTILINE)
_PATH = re.compile(r"^\s{0,16}((?:/|~)?[\w.+/~-]{0,200}/nvcc)\s{0,4}$", re.MULTILINE)
_PROMPTED = re.compile(r"(?:[\w.$\{\}/~-]{1,200}/nvcc)(?= (?:--version|-V)\b)")


def read_nvcc(text: PlainText) -> Values | None:
    """The release: `Cuda compilation tools, release 12.4, V12.4.131`."""
    body = text.body
    match = _RELEASE.search(body)
    if match is None:
        return None
    build = _BUILD.search(body, match.start())
    values: Values = {"release": match["release"], "version": match["version"], "build": build[1] if build else None}
    paths = _WINDOWS_PATH.findall(body) or _PATH.findall(body)
    if paths:
        values["paths"] = paths
    elif prompted := _PROMPTED.search(body):
        values["called_as"] = prompted[0]
    if _WINDOWS_PATH.search(body) or "_Daylight_Time_" in body or "_Standard_Time_" in body:
        values["platform"] = "windows"
    return values


_ALTERNATIVE = re.compile(r"^\s{0,16}(/[^\s]{1,120}) - priority (\d{1,9})", re.MULTILINE)
_MODE = re.compile(r"\bcuda(?:-\d{1,2})? - (auto|manual) mode")
_LINKS = {
    "best": re.compile(r"link best version is (\S{1,200})"),
    "current": re.compile(r"link currently points to (\S{1,200})"),
    "link": re.compile(r"link cuda is (\S{1,200})"),
}
_VARIABLE = re.compile(r"printenv (LD_LIBRARY_PATH|CUDA_HOME|CUDA_PATH)\s{0,4}\n\s{0,16}(/[^\n]{0,400})")
_WHICH = re.compile(r"(?:which|type -p|command -v|whereis) (?:-a )?nvcc\b")


def read_nvcc_paths(text: PlainText) -> Values | None:
    """Where nvcc is: `which nvcc` with its answer, and the alternatives of /usr/local/cuda."""
    body = "\n".join(unmarked(text))
    values: Values = {}
    if mode := _MODE.search(body):
        values["mode"] = mode[1]
        values |= {name: match[1] for name, pattern in _LINKS.items() if (match := pattern.search(body))}
        values["alternatives"] = {path: int(priority) for path, priority in _ALTERNATIVE.findall(body)}
    if variables := dict(_VARIABLE.findall(body)):
        values["env"] = {name: value.strip() for name, value in variables.items()}
    if _WHICH.search(body) and (path := _PATH.search(body)):
        nvcc = re.sub(r"/{2,8}", "/", path[1])
        values |= {"nvcc": nvcc, "toolkit_root": nvcc.removesuffix("/nvcc").removesuffix("/bin")}
    if "nvcc" in values and (release := _RELEASE.search(body)):
        values |= {"release": release["release"], "version": release["version"]}
    return values if "mode" in values or "nvcc" in values else None


NVCC = Reader("nvcc", ("Cuda compilation tools", "release "), read_nvcc)
NVCC_PATHS = Reader("nvcc_paths", ("nvcc", "link best version", "mode"), read_nvcc_paths)
