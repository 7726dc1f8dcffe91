"""The CUDA driver API through ctypes: every result checked and named, every missing symbol a typed error.

Standard library only, and cheap to import: it runs in a child process (`driver_child`) that may hang or crash.
"""

from __future__ import annotations

import ctypes
import sys
from typing import NamedTuple

from cudadoctor.gpu.cu_result import RESULTS, SUCCESS

DEFAULT_LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
"""What programs that use CUDA load; the loader decides which file that is."""

PROCESS_MAPS = "/proc/self/maps"


class CuResult(NamedTuple):
    """A result of the driver API with its name and text."""

    code: int
    name: str
    message: str


class LibraryLoadError(Exception):
    """The library cannot be loaded; the text is the loader's own."""


class MissingSymbolError(Exception):
    """The driver library lacks a function: it is older than the function, or no driver library at all."""


class DriverError(Exception):
    """A driver call returned something other than CUDA_SUCCESS."""

    def __init__(self, call: str, result: CuResult) -> None:
        super().__init__(f"{call}: {result.name} ({result.code}), {result.message}")
        self.call = call
        self.result = result


class Driver:
    """A loaded driver library."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    @classmethod
    def load(cls, path: str | None = None) -> Driver:
        """Load `path`, or what the loader picks for the default name; raises LibraryLoadError."""
        try:
            return cls(ctypes.CDLL(path or DEFAULT_LIBRARY))
        except OSError as error:
            raise LibraryLoadError(str(error)) from error

    def call(self, name: str, *arguments: object) -> None:
        """Call `name`; raises DriverError for a result other than success, MissingSymbolError where there is no such function."""
        code = self.code(name, *arguments)
        if code != SUCCESS:
            raise DriverError(name, self.result(code))

    def code(self, name: str, *arguments: object) -> int:
        """The result code of calling `name`; raises MissingSymbolError."""
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise MissingSymbolError(f"{name} is not in {self._library._name}") from None
        return int(function(*arguments))

    def has(self, name: str) -> bool:
        """True if the library exports `name`."""
        return hasattr(self._library, name)

    def result(self, code: int) -> CuResult:
        """The name and text of `code`: the driver's own words, else those of our table."""
        known_name, known_message = RESULTS.get(code, (f"CUDA_ERROR_{code}", "not a result known to this version of cudadoctor"))
        return CuResult(
            code, self._text("cuGetErrorName", code) or known_name, self._text("cuGetErrorString", code) or known_message
        )

    def _text(self, function: str, code: int) -> str:
        text = ctypes.c_char_p()
        try:
            answered = self.code(function, ctypes.c_int(code), ctypes.byref(text)) == SUCCESS
        except MissingSymbolError:
            return ""
        return (text.value or b"").decode("utf-8", "replace") if answered else ""

    def get_int(self, name: str, *arguments: object) -> int:
        """The int that `name` stores through its first argument."""
        value = ctypes.c_int()
        self.call(name, ctypes.byref(value), *arguments)
        return value.value

    def get_handle(self, name: str, *arguments: object) -> ctypes.c_void_p:
        """The handle (context, module, function, event) that `name` stores through its first argument."""
        value = ctypes.c_void_p()
        self.call(name, ctypes.byref(value), *arguments)
        return value


def mapped_libraries(marker: str) -> list[str]:
    """Paths of the files mapped into this process whose name contains `marker`, in the order of the map (Linux; else empty)."""
    try:
        with open(PROCESS_MAPS, encoding="utf-8", errors="replace") as maps:  # noqa: PTH123  # pathlib costs start-up time here
            fields = [line.rstrip("\n").split(None, 5) for line in maps]
    except OSError:
        return []
    paths = dict.fromkeys(row[5] for row in fields if len(row) == 6 and marker in row[5].rpartition("/")[2])
    return list(paths)
