"""Reads environment variables: dumps of `env` and `set`, `export` lines, Dockerfile `ENV`, `echo $NAME` with its answer."""

from __future__ import annotations

import re

from cudadoctor.readers.reader import Reader, Values
from cudadoctor.readers.text import PlainText

_ASSIGNMENT = re.compile(
    r"^[\s`*]{0,16}(?:(?:#\$|#|>|;)[ ]{0,4})?(?:[$%#] )?(?:ENV |export |set |setx |declare -x |\$env:|-e |--env )?"
    r"(?P<name>[A-Za-z_][A-Za-z0-9_]{0,80}(?:\(x86\))?) ?= ?(?P<quote>[\"']?)(?P<value>[^\n]{0,4000}?)"
    r"(?P=quote)(?P<rest>\s{1,12}#[^\n]{0,200})?\s{0,8}$"
)
_ENV_SPACE = re.compile(r"^\s{0,16}ENV (?P<name>[A-Z_][A-Z0-9_]{0,80}) (?P<value>[^=\n]{1,2000})$")
_PREFIXED = re.compile(
    r"(?:^|[$#>] |\s-e |\s--env )(?P<name>[A-Z][A-Z0-9_]{2,60})=(?P<quote>[\"']?)(?P<value>[^\s\"']{0,400})(?P=quote)(?=\s|$)"
)
_ECHO = re.compile(
    r"\becho\s{1,4}[\"']?(?:\$\{?(?P<name>[A-Za-z_][A-Za-z0-9_]{0,80})\}?|%"
    r"(?P<windows>[A-Za-z_][A-Za-z0-9_]{0,80})%)[\"']?\s{0,4}$"
)
_PYTHON = re.compile(
    r"os\.environ\[[\"'](?P<name>[A-Z][A-Z0-9_]{2,60})[\"']\]\s{0,4}=\s{0,4}[\"'](?P<value>[^\"'\n]{0,400})[\"']"
)
_TYPED = re.compile(r"^\s{0,16}[$#%] \w{1,80}=[\"']?[^\s\"']{0,400}[\"']?\s{1,8}\S")
"""A variable set for one command only: its value ends before the command."""
_SUMMARY_NVCC = re.compile(r"^\s{0,8}nvcc: (\d{1,3}\.\d{1,3}(?:\.\d{1,4})?)\s{0,8}$", re.MULTILINE)
_INTERESTING = re.compile(
    r"CUDA|NVIDIA|^NV_|NVARCH|NVCC|CUDNN|NCCL|TORCH|TRITON|XLA|TF_|JAX|LD_LIBRARY_PATH|LIBRARY_PATH"
r"|^PATH$|CONDA|VIRTUAL_ENV|^CC$|^CXX$|HIP_|ROCM|HSA_|"
    r"MAX_JOBS|DS_BUILD|BNB_|CUPY|NUMBA|^_$|^NUM_GPUS$|VLLM|CMAKE_|GGML|GPU|DISPLAY|WSL|UV_|PIP_|GCC|PYTHONPATH|LD_PRELOAD|FORCE_"
)  # fmt: skip
_PROMPT = re.compile(r"^\s{0,16}(?:[$#%>]|>>>|[\w.-]{1,40}@[^\n$#]{1,120}[$#]|(?:PS )?[A-Z]:\\[^\n>]{0,120}>|\([\w.-]{1,40}\))")


def read_environment_variables(text: PlainText) -> Values | None:
    """The variables that concern CUDA, each with its value as it stands (it may hold `=`); of several values the last."""
    variables: dict[str, str] = {}
    for position, line in enumerate(text.lines):
        variables |= _of_line(line)
        following = text.lines[position + 1] if position + 1 < len(text.lines) else ""
        variables |= _echoed(line, following)
    if not variables:
        return None
    values: Values = {"vars": variables}
    if any(re.match(r"[A-Za-z]:[\\/]", value) for value in variables.values()):
        values["platform"] = "windows"
    if nvcc := _SUMMARY_NVCC.search(text.body):
        values["nvcc_version"] = nvcc[1]
    return values


def _of_line(line: str) -> dict[str, str]:
    if "=" not in line:
        match = _ENV_SPACE.match(line)
        return {match["name"]: match["value"].strip()} if match and _INTERESTING.search(match["name"]) else {}
    found: dict[str, str] = {}
    match = _ASSIGNMENT.match(line)
    if match and not _TYPED.match(line) and _INTERESTING.search(match["name"]) and not match["value"].startswith("="):
        found[match["name"]] = match["value"].strip()
    if not found:
        found = {m["name"]: m["value"] for m in _PREFIXED.finditer(line) if _INTERESTING.search(m["name"])}
    if python := _PYTHON.search(line):
        found[python["name"]] = python["value"]
    return found


def _echoed(line: str, following: str) -> dict[str, str]:
    """The value on the line after `echo $NAME`; empty where a prompt or nothing follows."""
    match = _ECHO.search(line)
    if match is None:
        return {}
    name = match["name"] or match["windows"]
    if not _INTERESTING.search(name):
        return {}
    value = following.strip()
    return {name: "" if _PROMPT.match(following) and not value.startswith(("/", ".")) else value}


ENV_VARS = Reader("env_vars", ("=", "ENV ", "echo "), read_environment_variables)
