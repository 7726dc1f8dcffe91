"""The version numbers of the CUDA stack, each with its own type so that they cannot be mixed up.

Every type is parsed from text, keeps or reproduces that text, is ordered, hashable and immutable. Comparing two types with
each other is a type error for mypy and raises TypeError at run time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, TypeVar

if TYPE_CHECKING:
    from typing_extensions import Self

MAX_DIGITS = 9
"""Longest run of digits taken for a number; longer ones are hostile text, not versions."""


class VersionError(ValueError):
    """The text is not a version of the wanted kind."""


def _match(pattern: re.Pattern[str], text: str, what: str) -> re.Match[str]:
    match = pattern.fullmatch(text.strip())
    if match is None:
        raise VersionError(f"not {what}: {text[:80]!r}")
    return match


T = TypeVar("T")


def _travels_as_text(kind: type[T]) -> type[T]:
    """The dataclass `kind`, no longer recognisable as one: msgspec would write out its fields instead of asking our codec."""
    delattr(kind, "__dataclass_fields__")
    return kind


class Ordered:
    """Equality and order by `_key`, only within one type: a driver release never equals or follows a CUDA version."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text that `str()` of such a value gives; raises VersionError."""
        raise NotImplementedError

    @property
    def _key(self) -> tuple[object, ...]:
        raise NotImplementedError

    def __reduce__(self) -> tuple[object, ...]:
        return type(self).parse, (str(self),)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, Ordered) and self._key == other._key

    def __hash__(self) -> int:
        return hash((type(self), self._key))

    def __lt__(self, other: Self) -> bool:
        return self._key < other._key if type(other) is type(self) else NotImplemented

    def __le__(self, other: Self) -> bool:
        return self._key <= other._key if type(other) is type(self) else NotImplemented

    def __gt__(self, other: Self) -> bool:
        return self._key > other._key if type(other) is type(self) else NotImplemented

    def __ge__(self, other: Self) -> bool:
        return self._key >= other._key if type(other) is type(self) else NotImplemented


@_travels_as_text
@dataclass(frozen=True, slots=True, eq=False)
class DottedVersion(Ordered):
    """A dotted number such as glibc 2.39, gcc 13.2.0, cuDNN 9.1.0.70; compared number by number.

    `13.2` and `13.2.0` are equal; what follows the numbers (`rc1`, `+cu124`) is kept in `text` and not compared.
    """

    parts: tuple[int, ...]
    text: str

    _PATTERN: ClassVar[re.Pattern[str]] = re.compile(rf"v?(\d{{1,{MAX_DIGITS}}}(?:\.\d{{1,{MAX_DIGITS}}}){{0,7}})(.*)", re.DOTALL)

    @classmethod
    def parse(cls, text: str) -> DottedVersion:
        """Read the leading dotted number of `text`; raises VersionError where there is none."""
        match = _match(cls._PATTERN, text, "a dotted version")
        return cls(tuple(int(part) for part in match[1].split(".")), text.strip())

    @property
    def _key(self) -> tuple[int, ...]:
        parts = self.parts
        while len(parts) > 1 and parts[-1] == 0:
            parts = parts[:-1]
        return parts

    @property
    def major(self) -> int:
        return self.parts[0]

    @property
    def minor(self) -> int:
        return self.parts[1] if len(self.parts) > 1 else 0

    def __str__(self) -> str:
        return self.text


class DriverRelease(DottedVersion):
    """The release of the kernel driver, e.g. `580.65.06`; its branch is the first number (580).

    On WSL2 and Windows it is the release that nvidia-smi prints (`566.36`), not the Windows file version (`32.0.15.6636`).
    """

    __slots__ = ()

    _PATTERN: ClassVar[re.Pattern[str]] = re.compile(
        rf"(\d{{1,{MAX_DIGITS}}}(?:\.\d{{1,{MAX_DIGITS}}}){{0,3}})([-+~_ ].*|)", re.DOTALL
    )

    @classmethod
    def parse(cls, text: str) -> DriverRelease:
        """Read `580.65.06` or a bare branch `580`; raises VersionError."""
        match = _match(cls._PATTERN, text, "a driver release")
        return cls(tuple(int(part) for part in match[1].split(".")), match[1])

    @property
    def branch(self) -> int:
        """The driver branch (580 for 580.65.06)."""
        return self.parts[0]


@_travels_as_text
@dataclass(frozen=True, slots=True, eq=False)
class CudaVersion(Ordered):
    """A CUDA release number: of a toolkit, a runtime, a build of torch, or the newest that a driver supports.

    The field that holds it says which. Only `major.minor` is compared; a toolkit's build (`12.6.85`) is kept in `text`.
    """

    major: int
    minor: int
    text: str

    _PATTERN: ClassVar[re.Pattern[str]] = re.compile(r"[vV]?(\d{1,3})\.(\d{1,3})((?:\.\d{1,9}){0,3})")

    @classmethod
    def parse(cls, text: str) -> CudaVersion:
        """Read `12.6`, `12.6.85` or `V12.6.85`; raises VersionError."""
        match = _match(cls._PATTERN, text, "a CUDA version")
        return cls(int(match[1]), int(match[2]), f"{int(match[1])}.{int(match[2])}{match[3]}")

    @classmethod
    def from_int(cls, number: int) -> CudaVersion:
        """Read the API's integer, e.g. 12060 for 12.6 (cuDriverGetVersion, CUDART_VERSION); raises VersionError."""
        if not 1000 <= number < 1_000_000:
            raise VersionError(f"not a CUDA version number: {number}")
        return cls.of(number // 1000, number % 1000 // 10)

    @classmethod
    def from_tag(cls, tag: str) -> CudaVersion:
        """Read the tag of a wheel, e.g. `cu126` or `cu92`; raises VersionError."""
        match = _match(re.compile(r"cu(\d{2,3})"), tag, "a CUDA wheel tag")
        return cls.of(int(match[1][:-1]), int(match[1][-1]))

    @classmethod
    def of(cls, major: int, minor: int) -> CudaVersion:
        return cls(major, minor, f"{major}.{minor}")

    @property
    def _key(self) -> tuple[int, int]:
        return self.major, self.minor

    @property
    def release(self) -> str:
        """`12.6` for 12.6.85."""
        return f"{self.major}.{self.minor}"

    @property
    def tag(self) -> str:
        """The wheel tag, `cu126`."""
        return f"cu{self.major}{self.minor}"

    def __str__(self) -> str:
        return self.text


@_travels_as_text
@dataclass(frozen=True, slots=True, eq=False)
class PtxIsa(Ordered):
    """The version of the PTX language, e.g. 8.5 (what `.version` in a PTX file says)."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> PtxIsa:
        """Read `8.5`; raises VersionError."""
        match = _match(re.compile(r"(\d{1,2})\.(\d{1,2})"), text, "a PTX ISA version")
        return cls(int(match[1]), int(match[2]))

    @property
    def _key(self) -> tuple[int, int]:
        return self.major, self.minor

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


@_travels_as_text
@dataclass(frozen=True, slots=True, eq=False)
class ComputeCapability(Ordered):
    """The compute capability of a device, e.g. 8.6."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> ComputeCapability:
        """Read `8.6`, `(8, 6)` or `sm_86`; raises VersionError."""
        match = _match(
            re.compile(r"\(?(\d{1,2})(?:\.|,\s{0,3})(\d)\)?|(?:sm_|compute_)(\d{1,2})(\d)[af]?"), text, "a compute capability"
        )
        major, minor = (match[1], match[2]) if match[1] is not None else (match[3], match[4])
        return cls(int(major), int(minor))

    @classmethod
    def from_number(cls, number: int) -> ComputeCapability:
        """Read the decimal architecture number of a binary, e.g. 120 for 12.0."""
        return cls(*divmod(number, 10))

    @property
    def number(self) -> int:
        """120 for 12.0."""
        return self.major * 10 + self.minor

    @property
    def sm(self) -> SmTarget:
        """The plain compile target of this capability, `sm_86`."""
        return SmTarget(CodeKind.SASS, self, "")

    @property
    def _key(self) -> tuple[int, int]:
        return self.major, self.minor

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


class CodeKind(Enum):
    """The form of device code: machine code, virtual ISA, or link-time intermediate."""

    SASS = "sm"
    PTX = "compute"
    LTO = "lto"


@_travels_as_text
@dataclass(frozen=True, slots=True, eq=False)
class SmTarget(Ordered):
    """A compile target or the code made for it: `sm_90`, `sm_90a`, `compute_120`, `sm_100f`.

    Suffix `a` is for exactly that capability, `f` for its family.
    """

    kind: CodeKind
    compute_capability: ComputeCapability
    suffix: str

    _PATTERN: ClassVar[re.Pattern[str]] = re.compile(r"(sm|compute|lto)_(\d{1,2})(\d)([af]?)")

    @classmethod
    def parse(cls, text: str) -> SmTarget:
        """Read `sm_90a`; raises VersionError."""
        return _sm_target(text)

    @property
    def _key(self) -> tuple[ComputeCapability, str, str]:
        return self.compute_capability, self.suffix, self.kind.value

    def __hash__(self) -> int:
        return hash((self.compute_capability.number, self.suffix))

    def __str__(self) -> str:
        return f"{self.kind.value}_{self.compute_capability.number}{self.suffix}"


@lru_cache(maxsize=512)
def _sm_target(text: str) -> SmTarget:
    """`SmTarget.parse`, remembered: there are few targets, and the same object is the quickest to compare."""
    match = _match(SmTarget._PATTERN, text, "a compile target")
    return SmTarget(CodeKind(match[1]), ComputeCapability(int(match[2]), int(match[3])), match[4])
