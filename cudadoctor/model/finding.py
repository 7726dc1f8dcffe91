"""What the doctor says: findings with evidence and fixes."""

from enum import Enum

from msgspec import Struct


class Severity(Enum):
    """How bad: an error stops CUDA from working, a warning will or may, a note is for information."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return list(Severity).index(self)


class Confidence(Enum):
    """How sure the finding is, given the facts at hand."""

    CERTAIN = "certain"
    LIKELY = "likely"
    POSSIBLE = "possible"

    @property
    def rank(self) -> int:
        """0 for the surest."""
        return list(Confidence).index(self)


class Where(Enum):
    """Where a fix's commands are to be typed."""

    HOST = "host"
    CONTAINER = "container"
    WSL = "wsl"
    WINDOWS = "windows"
    VENV = "venv"


class Evidence(Struct, frozen=True, kw_only=True):
    """A fact that a finding rests on: path in the snapshot, value as text, source, line where the source is a text."""

    fact: str
    value: str
    source: str
    line: int | None = None


class Fix(Struct, frozen=True, kw_only=True):
    """Commands that mend the problem, the smallest change first."""

    title: str
    commands: tuple[str, ...] = ()
    where: Where = Where.HOST
    needs_root: bool = False
    needs_reboot: bool = False
    rechecked: bool = False
    """True where the same rules found the machine, as it would be after this fix, free of the problem."""
    verify: tuple[str, ...] = ()


class Finding(Struct, frozen=True, kw_only=True):
    """One problem, benign difference or remark."""

    code: str
    name: str
    severity: Severity
    tags: tuple[str, ...] = ()
    subject: str
    what: str
    why: str = ""
    confidence: Confidence = Confidence.CERTAIN
    root: bool = True
    explains: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    fixes: tuple[Fix, ...] = ()
    references: tuple[str, ...] = ()


class UnknownRule(Struct, frozen=True):
    """A rule that could not be judged, and why."""

    code: str
    name: str
    because: str
