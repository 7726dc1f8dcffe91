"""Reads logs of installers: what pip replaced, which wheel was downloaded, why uv found no solution."""

from __future__ import annotations

import re

from cudadoctor.readers.reader import Reader, Values
from cudadoctor.readers.text import PlainText

_BECAUSE = re.compile(
    r"Because\s{1,8}(?:only\s{1,8})?(?:there\s{1,8}is\s{1,8}no\s{1,8}version\s{1,8}of\s{1,8})?"
    r"(?P<package>[A-Za-z][\w.-]{0,60})(?:\[[\w,-]{1,40}\])?(?P<requested>[=<>~!]{1,2}[\w.+*]{1,60})"
)
_REASONS = (
    ("no_such_version", re.compile(r"there\s{1,8}is\s{1,8}no\s{1,8}version\s{1,8}of")),
    ("no_matching_python_implementation", re.compile(r"matching\s{1,8}Python\s{1,8}implementation")),
    ("no_matching_python_abi", re.compile(r"matching\s{1,8}Python\s{1,8}ABI\s{1,8}tag")),
    ("no_matching_python_version", re.compile(r"matching\s{1,8}Python\s{1,8}version\s{1,8}tag")),
    (
        "no_matching_platform",
        re.compile(r"matching\s{1,8}platform\s{1,8}tag|wheel\s{1,8}for\s{1,8}the\s{1,8}current\s{1,8}platform"),
    ),
    ("requires_other_python", re.compile(r"requested\s{1,8}Python\s{1,8}version|does\s{1,8}not\s{1,8}satisfy\s{1,8}Python")),
    ("not_on_index", re.compile(r"was\s{1,8}not\s{1,8}found\s{1,8}in\s{1,8}the\s{1,8}(?:package\s{1,8}registry|provided)")),
)
_PYTHON_TAG = re.compile(r"You\s{1,8}require\s{1,8}C?Python\s{1,8}[\d.]{1,8}\s{1,8}\(`(cp\d{2,4}t?)`\)")
_ABI_TAGS = re.compile(
    r"following\s{1,8}Python\s{1,8}(?:ABI|implementation)?\s{0,8}tags?:\s{1,8}(?P<tags>(?:`\w{2,20}`[,\s]{0,12}){1,40})"
)
_PLATFORM = re.compile(
    r"You're\s{1,8}on\s{1,8}\w{3,10}\s{1,8}\(`(?P<platform>\w{3,40})`\),\s{1,8}but\s{1,8}`"
    r"(?P<package>[\w.-]{1,60})`\s{1,8}\(v(?P<version>[\w.+-]{1,40})\)"
    r"\s{1,8}only\s{1,8}has\s{1,8}wheels\s{1,8}for\s{1,8}the\s{1,8}following\s{1,8}platforms?:\s{1,8}"
    r"(?P<tags>(?:`\w{2,40}`[,;\s]{0,12}){1,40})"
)
_TICKED = re.compile(r"`(\w{2,40})`")
_HINT = re.compile(r"^\s{0,12}(?:hint|help):", re.MULTILINE)


def read_uv_failure(text: PlainText) -> Values | None:
    """Why uv found no solution: package, version asked for, reason, tags that exist."""
    body = text.body
    platform = _PLATFORM.search(body)
    values: Values = {}
    if "No solution found" in body or "error: Distribution" in body:
        because = _BECAUSE.search(body)
        values = {
            "error": "no_solution",
            "package": because["package"] if because else None,
            "requested": because["requested"] if because else None,
            "reason": next((reason for reason, pattern in _REASONS if pattern.search(body)), None),
            "hints": len(_HINT.findall(body)),
        }
        if tag := _PYTHON_TAG.search(body):
            values["python_tag"] = tag[1]
        if tags := _ABI_TAGS.search(body):
            values["available_tags"] = _TICKED.findall(tags["tags"])
    elif platform:
        values = {"error": "no_wheel_for_platform", "package": platform["package"], "version": platform["version"]}
    if platform:
        values |= _platform(platform)
    return values or None


def _platform(match: re.Match[str]) -> Values:
    tag = match["platform"]
    platform = "macos" if tag.startswith("macos") else "windows" if tag.startswith("win") else "linux"
    return {"platform_tag": tag, "available_platforms": _TICKED.findall(match["tags"]), "platform": platform}


_FOUND = re.compile(r"Found existing installation: (?P<name>[\w.-]{1,60}) (?P<version>[\w.+-]{1,60})")
_UNINSTALLED = re.compile(r"Successfully uninstalled (?P<name>[A-Za-z][\w.]{0,60})-(?P<version>\d[\w.+-]{0,60})")
_INSTALLED = re.compile(r"Successfully installed (?P<all>[^\n]{3,4000})")
_NAME_VERSION = re.compile(r"(?P<name>[A-Za-z][\w.-]{0,60}?)-(?P<version>\d[\w.+]{0,60})")
_UV_CHANGE = re.compile(r"^\s{0,8}(?P<sign>[-+~]) (?P<name>[a-z][\w.-]{0,60})==(?P<version>[\w.+-]{1,60})\s{0,4}$", re.MULTILINE)
_WHEEL = re.compile(
    r"\b(?P<name>[A-Za-z][\w.]{0,60})-(?P<version>\d[\w.+%]{0,60})-(?P<python>(?:cp|py)\d{1,4}t?)-"
    r"(?P<abi>\w{2,12})-(?P<platform>[\w.]{3,60})\.whl"
)


def read_install_log(text: PlainText) -> Values | None:
    """What an installer removed, installed and downloaded: `Found existing installation: torch 2.2.1+cu118` ..."""
    body = text.body
    removed = {m["name"].lower().replace("_", "-"): m["version"] for m in (*_FOUND.finditer(body), *_UNINSTALLED.finditer(body))}
    installed: dict[str, str] = {}
    for line in _INSTALLED.finditer(body):
        installed |= {
            m["name"].lower().replace("_", "-"): m["version"]
            for word in line["all"].split()
            if (m := _NAME_VERSION.fullmatch(word))
        }
    for change in _UV_CHANGE.finditer(body):
        target = removed if change["sign"] == "-" else installed
        target[change["name"]] = change["version"]
    wheels = [
        {
            "name": m["name"].lower().replace("_", "-"),
            "version": m["version"].replace("%2B", "+"),
            "python": m["python"],
            "platform": m["platform"],
        }
        for m in _WHEEL.finditer(body)
    ]
    if not (removed or installed or wheels):
        return None
    return {"removed": removed, "installed": installed, "wheels": wheels}


UV_FAILURE = Reader("uv_failure", ("No solution found", "only has wheels", "error: Distribution", "wheels for"), read_uv_failure)
INSTALL_LOG = Reader("install_log", ("Successfully", "Found existing installation", ".whl", " + ", " - "), read_install_log)
