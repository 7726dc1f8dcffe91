"""Reads what tells WSL: `wsl --version`, `wsl -l -v`, kernel names, Windows builds."""

from __future__ import annotations

import re

from cudadoctor.readers.reader import Reader, Values, first_version
from cudadoctor.readers.text import PlainText

_LINE = re.compile(r"^\s{0,16}(?:[-*] )?(?P<label>[^\n:]{2,40}?) ?[::]\s{0,4}(?P<value>\d[\w.-]{2,80})\s{0,4}$", re.MULTILINE)
_LABELS = (
    ("wsl_version", re.compile(r"WSL", re.IGNORECASE)),
    ("wslg", re.compile(r"WSLg", re.IGNORECASE)),
    ("kernel", re.compile(r"kernel|kernel-version|noyau|núcleo", re.IGNORECASE)),
    ("windows", re.compile(r"windows", re.IGNORECASE)),
)
_WINDOWS = re.compile(r"Microsoft Windows \[[^\]\d\n]{1,20}(?P<build>10\.0\.\d{5}(?:\.\d{1,6})?)\]")
_DISTRO = re.compile(
    r"^[ ]{0,16}(?P<default>\*)?[ ]{0,8}(?P<name>[A-Za-z][\w.-]{1,40})[ ]{2,40}"
    r"(?P<state>[A-Z]\w{2,20})[ ]{2,40}(?P<version>[12])[ ]{0,8}$",
    re.MULTILINE,
)
_KERNEL2 = re.compile(r"(?P<kernel>\d{1,2}\.\d{1,3}\.\d{1,4}(?:\.\d{1,3})?-microsoft-standard(?:-WSL2)?\+?)")
_KERNEL1 = re.compile(r"(?P<kernel>4\.4\.0-\d{5}-Microsoft)")
_UNAME = re.compile(r"^\s{0,8}Linux \S{1,60} \d[^\n]{10,200}? (?P<arch>x86_64|aarch64)(?: \S{1,20}){0,2}\s{0,4}$", re.MULTILINE)
_FORM = re.compile(r"#{1,4} (?P<label>[^\n]{3,40})\n\s{0,4}\n?(?P<value>[^\n#]{1,120})")
_CHECKED = re.compile(r"- \[[xX]\] WSL ([12])")


def read_wsl(text: PlainText) -> Values | None:
    """Versions, distributions and generation of WSL, as far as the text tells."""
    body = text.body.replace("\x00", "")
    lowered = body.lower()
    if "wsl" not in lowered and "microsoft" not in lowered and not _DISTRO.search(body):
        return None
    values: Values = {}
    values |= _versions(body)
    distros = [_distro(match) for match in _DISTRO.finditer(body)]
    if "wsl_version" in values or distros:
        values["distros"] = distros
    values |= _kernel(body)
    values |= _form(body)
    if distros:
        values["is_wsl"] = True
    if windows := _WINDOWS.search(body):
        values["windows"] = windows["build"]
    return values or None


def _versions(body: str) -> Values:
    values: Values = {}
    if not re.search(r"WSL[^\n]{0,20}:\s{0,4}\d", body):
        return values
    for match in _LINE.finditer(body):
        label = match["label"]
        name = "wslg" if "wslg" in label.lower() else next((key for key, pattern in _LABELS if pattern.search(label)), None)
        if name and name not in values:
            values[name] = match["value"]
    return values


def _distro(match: re.Match[str]) -> Values:
    return {
        "name": match["name"],
        "state": match["state"],
        "version": int(match["version"]),
        "default": match["default"] is not None,
    }


def _kernel(body: str) -> Values:
    two, one = _KERNEL2.search(body), _KERNEL1.search(body)
    match = two or one
    if match is None:
        return {}
    values: Values = {"is_wsl": True, "wsl_generation": 2 if two else 1, "kernel": match["kernel"]}
    uname = _UNAME.search(body)
    return values | {"arch": uname["arch"]} if uname else values


def _form(body: str) -> Values:
    """The fields of the ticket form of WSL's own tracker."""
    fields = {match["label"].strip().lower(): match["value"].strip() for match in _FORM.finditer(body)}
    values: Values = {}
    if kernel := first_version(fields.get("kernel version")):
        values["kernel"] = kernel
    if distribution := fields.get("distribution") or fields.get("distro version"):
        values["distro"] = distribution
    if checked := _CHECKED.search(body):
        values["wsl_generation"] = int(checked[1])
    return values


WSL = Reader("wsl", ("WSL", "icrosoft", "wsl", "Stopped", "Running"), read_wsl)
