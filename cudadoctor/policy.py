"""The policy that a repository checks in: cudadoctor.toml, or [tool.cudadoctor] of pyproject.toml."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import structs

from cudadoctor.diagnosis import Selection, SelectionError
from cudadoctor.matrices import Matrices
from cudadoctor.model.finding import Severity
from cudadoctor.model.snapshot import Snapshot, TextReading
from cudadoctor.model.versions import VersionError
from cudadoctor.named import GpuNameError, capability_of, release_of
from cudadoctor.paths import is_file
from cudadoctor.requirements import QUANTITIES, RequirementError, parse_requirements

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

OWN_FILE, SHARED_FILE = "cudadoctor.toml", "pyproject.toml"
TABLE = "tool.cudadoctor"
READING = "policy"
MAX_BYTES = 1024 * 1024
MOST_DOTS = 1000
"""In one line: tomllib's time grows with the square of the parts of a key."""
FAIL_ON = ("error", "warning", "never")
KEYS = ("gpus", "driver", "require", "select", "ignore", "severity", "fail-on")


class PolicyError(ValueError):
    """A policy cannot be used; the text names file, key and reason."""


@dataclass(frozen=True)
class Policy:
    """What the repository demands, and how its findings count."""

    path: str = ""
    """The file, and for pyproject.toml the table; empty where there is no policy."""
    gpus: tuple[str, ...] = ()
    driver: str | None = None
    requirements: str = ""
    """As --require writes them."""
    selection: Selection = field(default_factory=Selection)
    fail_on: str | None = None

    def combined(self, given: Selection) -> Selection:
        """The policy's rules with those of the command line: its --select counts alone, its --ignore besides."""
        select = given.select or self.selection.select
        ignore = (*self.selection.ignore, *given.ignore)
        return Selection(select, ignore, (*self.selection.severities, *given.severities))

    def machine_requirements(self, matrices: Matrices) -> str:
        """All demands as --require writes them, for a machine that has to have the GPUs and the driver itself."""
        capabilities = [f"gpu=={capability_of(name, matrices)}" for name in self.gpus]
        return ",".join(part for part in (*capabilities, self.installed_requirements) if part)

    @property
    def installed_requirements(self) -> str:
        """The demands on what is installed and on the driver named, as --require writes them."""
        floor = [f"driver>={self.driver}"] if self.driver is not None else []
        return ",".join(part for part in (*floor, self.requirements) if part)

    @property
    def document(self) -> dict[str, Any]:
        """For the report: the file, and every setting in it."""
        return {
            "file": self.path,
            "gpus": list(self.gpus),
            "driver": self.driver,
            "require": self.requirements,
            "select": list(self.selection.select),
            "ignore": list(self.selection.ignore),
            "severity": {name: severity.value for name, severity in self.selection.severities},
            "fail_on": self.fail_on,
        }


NO_POLICY = Policy()


def with_policy_shown(snapshot: Snapshot, policy: Policy) -> Snapshot:
    """The snapshot with the policy that its report is judged by, in place of any that it was judged by before."""
    others = tuple(each for each in snapshot.readings if each.kind != READING)
    shown = (TextReading(kind=READING, values=policy.document),) if policy.path else ()
    return (
        snapshot if not shown and len(others) == len(snapshot.readings) else structs.replace(snapshot, readings=(*others, *shown))
    )


def find_policy(folder: Path, named: Path | None, matrices: Matrices) -> Policy:
    """The policy named, else the working folder's own, else none; raises PolicyError where one is there and bad."""
    if named is not None:
        return read_policy(named, matrices)
    own = folder / OWN_FILE
    if _is_there(own):
        return read_policy(own, matrices, OWN_FILE)
    shared = folder / SHARED_FILE
    if _is_there(shared) and is_file(shared) and f"[{TABLE}".encode() in _beginning(shared):
        return read_policy(shared, matrices, SHARED_FILE)
    return NO_POLICY


def _is_there(path: Path) -> bool:
    """Is there such an entry, also a dangling link? PolicyError where it may not be seen: a gate is never passed over."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise PolicyError(f"{path}: {error.strerror or error}") from error
    return True


def read_policy(path: Path, matrices: Matrices, shown: str = "") -> Policy:
    """The policy in a file, which reports call `shown`, else by its path; raises PolicyError."""
    reader = _Reader(shown or str(path), matrices)
    text = _text(path)
    if any(line.count(".") > MOST_DOTS for line in text.splitlines()):
        raise PolicyError(f"{reader.file}: nested too deeply")
    try:
        document = tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError, and that of a number of too many digits
        raise PolicyError(f"{reader.file}: not TOML: {error}") from error
    except RecursionError as error:
        raise PolicyError(f"{reader.file}: nested too deeply") from error
    if path.name == SHARED_FILE:
        tool = document.get("tool", {})
        section = tool.get("cudadoctor") if isinstance(tool, dict) else None
        if not isinstance(section, dict):
            raise PolicyError(f"{reader.file}: it has no table [{TABLE}]")
        return reader.policy(section)
    return reader.policy(document)


def _beginning(path: Path) -> bytes:
    """What a file begins with, as far as a policy may reach; raises PolicyError where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES)
    except OSError as error:
        raise PolicyError(f"{path}: {error.strerror or error}") from error


def _text(path: Path) -> str:
    try:
        if path.exists() and not path.is_file():
            raise PolicyError(f"{path}: not a regular file")
        if path.stat().st_size > MAX_BYTES:
            raise PolicyError(f"{path}: larger than {MAX_BYTES // 1024} kB, too large for a policy")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise PolicyError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise PolicyError(f"{path}: not UTF-8 text") from error


class _Reader:
    """Reads the keys of one policy, each with its own error."""

    def __init__(self, file: str, matrices: Matrices) -> None:
        self.file = file
        self.matrices = matrices

    def policy(self, document: Mapping[str, Any]) -> Policy:
        for key in document:
            if key not in KEYS:
                raise self.error(key, f"no such setting; there are {', '.join(KEYS)}")
        policy = Policy(
            path=self.file,
            gpus=self.gpus(document),
            driver=self.driver(document),
            requirements=self.requirements(document),
            selection=Selection(self.rules(document, "select"), self.rules(document, "ignore"), self.severities(document)),
            fail_on=self.fail_on(document),
        )
        self.check_requirements(policy.requirements)
        return policy

    def error(self, key: str, reason: str) -> PolicyError:
        return PolicyError(f"{self.file}: {key}: {reason}")

    def texts(self, document: Mapping[str, Any], key: str) -> tuple[str, ...]:
        value = document.get(key, [])
        if isinstance(value, str):
            value = [value]
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self.error(key, f"must be a list of texts, not {value!r:.60}")
        return tuple(value)

    def gpus(self, document: Mapping[str, Any]) -> tuple[str, ...]:
        names = self.texts(document, "gpus")
        try:
            for name in names:
                capability_of(name, self.matrices)
        except GpuNameError as error:
            raise self.error("gpus", str(error)) from error
        return names

    def driver(self, document: Mapping[str, Any]) -> str | None:
        value = document.get("driver")
        if value is None:
            return None
        text = str(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else ""
        try:
            release_of(text, self.matrices)
        except VersionError as error:
            raise self.error("driver", str(error)) from error
        return text

    def requirements(self, document: Mapping[str, Any]) -> str:
        """A list as for --require, or a table: `torch = ">=2.6"`."""
        value = document.get("require", [])
        if not isinstance(value, dict):
            return ",".join(self.texts(document, "require"))
        for name, condition in value.items():
            if not isinstance(condition, str):
                raise self.error(f"require.{name}", f"must be a text such as '>=2.6', not {condition!r:.60}")
        return ",".join(f"{name}{part.strip()}" for name, condition in value.items() for part in condition.split(","))

    def check_requirements(self, text: str) -> None:
        try:
            parse_requirements(text)
        except RequirementError as error:
            raise self.error(
                "require", f"{error} (there are {', '.join(QUANTITIES)})" if "nothing is called" not in str(error) else str(error)
            ) from error

    def rules(self, document: Mapping[str, Any], key: str) -> tuple[str, ...]:
        names = self.texts(document, key)
        self.check_rules(key, Selection(select=names))
        return names

    def check_rules(self, key: str, selection: Selection) -> None:
        try:
            selection.rules()
        except SelectionError as error:
            raise self.error(key, str(error)) from error

    def severities(self, document: Mapping[str, Any]) -> tuple[tuple[str, Severity], ...]:
        value = document.get("severity", {})
        if not isinstance(value, dict):
            raise self.error("severity", f"must be a table of rules and severities, not {value!r:.60}")
        return tuple((name, self.severity(name, wanted)) for name, wanted in value.items())

    def severity(self, name: str, wanted: Any) -> Severity:
        self.check_rules(f"severity.{name}", Selection(select=(name,)))
        allowed = [severity.value for severity in Severity]
        if wanted not in allowed:
            raise self.error(f"severity.{name}", f"must be one of {', '.join(allowed)}, not {wanted!r:.60}")
        return Severity(wanted)

    def fail_on(self, document: Mapping[str, Any]) -> str | None:
        value = document.get("fail-on")
        if value is not None and value not in FAIL_ON:
            raise self.error("fail-on", f"must be one of {', '.join(FAIL_ON)}, not {value!r:.60}")
        return value
