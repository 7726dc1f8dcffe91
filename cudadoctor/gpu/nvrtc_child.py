"""The process that compiles with NVRTC: one JSON request a line on stdin, one JSON answer a line on stdout.

Loading a foreign libnvrtc may crash or hang; then only this process does. Standard library only. Requests: {"do": "load",
"library": PATH}, then any number of {"do": "compile", "source", "name", "options", "kind": "cubin"|"ptx", "output": PATH}.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

from cudadoctor.gpu.driver_api import mapped_libraries
from cudadoctor.gpu.driver_child import private_stdout

Answer = dict[str, Any]
GETTERS = {"cubin": ("nvrtcGetCUBINSize", "nvrtcGetCUBIN"), "ptx": ("nvrtcGetPTXSize", "nvrtcGetPTX")}


class NvrtcError(Exception):
    """A call returned something other than NVRTC_SUCCESS."""

    def __init__(self, call: str, code: int, text: str) -> None:
        super().__init__(f"{call}: {text} ({code})")
        self.call = call
        self.code = code
        self.text = text


class Nvrtc:
    """A loaded libnvrtc."""

    def __init__(self, path: str) -> None:
        """Load `path`; raises OSError.

        libnvrtc opens its builtins by bare name, and from 13.0 on has no RUNPATH to find them beside itself: they are loaded
        first, as torch and other users of the wheels do.
        """
        folder = Path(path).parent
        for builtins in sorted(folder.glob("libnvrtc-builtins.so.*")):
            ctypes.CDLL(str(builtins))
        self._library = ctypes.CDLL(path)

    def has(self, name: str) -> bool:
        """True if the library exports `name`: cubins came with 11.1, the list of architectures with 11.2."""
        return hasattr(self._library, name)

    def call(self, name: str, *arguments: object) -> None:
        """Call `name`; raises NvrtcError, or AttributeError where the library lacks it."""
        code = int(getattr(self._library, name)(*arguments))
        if code:
            self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
            raise NvrtcError(name, code, (self._library.nvrtcGetErrorString(code) or b"").decode("utf-8", "replace"))

    def version(self) -> list[int]:
        """Major and minor."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        return [major.value, minor.value]

    def architectures(self) -> list[int] | None:
        """Numbers of the targets it supports (90 for sm_90), or None where it is too old to say."""
        if not self.has("nvrtcGetNumSupportedArchs"):
            return None
        count = ctypes.c_int()
        self.call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        numbers = (ctypes.c_int * count.value)()
        self.call("nvrtcGetSupportedArchs", numbers)
        return list(numbers)

    def compile(self, source: str, name: str, options: list[str], kind: str) -> tuple[bytes, str]:
        """The code and the compiler's log; raises NvrtcError, for wrong source with the log in its `text`."""
        program = ctypes.c_void_p()
        self.call("nvrtcCreateProgram", ctypes.byref(program), source.encode(), name.encode(), ctypes.c_int(0), None, None)
        try:
            texts = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            try:
                self.call("nvrtcCompileProgram", program, ctypes.c_int(len(options)), texts)
            except NvrtcError as error:
                log = (
                    self._bytes(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog").rstrip(b"\0").decode("utf-8", "replace")
                )
                raise NvrtcError(error.call, error.code, f"{error.text}\n{log}") from error
            log = self._bytes(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog").rstrip(b"\0").decode("utf-8", "replace")
            return self._bytes(program, *GETTERS[kind]), log
        finally:
            self.call("nvrtcDestroyProgram", ctypes.byref(program))

    def _bytes(self, program: ctypes.c_void_p, size_getter: str, getter: str) -> bytes:
        size = ctypes.c_size_t()
        self.call(size_getter, program, ctypes.byref(size))
        content = ctypes.create_string_buffer(size.value)
        self.call(getter, program, content)
        return content.raw


class NvrtcServer:
    """Answers requests; keeps the loaded library."""

    def __init__(self) -> None:
        self._nvrtc: Nvrtc | None = None

    def answer(self, request: dict[str, Any]) -> Answer:
        """The answer to one request; raises KeyError for a malformed one."""
        try:
            if request["do"] == "load":
                return self._load(request["library"])
            if self._nvrtc is None:
                return {"load_error": "no NVRTC library is loaded"}
            return self._compile(self._nvrtc, request)
        except NvrtcError as error:
            return {"error": {"code": error.code, "name": error.text.split("\n", 1)[0], "message": error.text}}
        except AttributeError as error:
            return {"load_error": f"not an NVRTC library: {error}"}

    def _load(self, path: str) -> Answer:
        try:
            nvrtc = Nvrtc(path)
        except OSError as error:
            return {"load_error": str(error)}
        version = nvrtc.version()
        self._nvrtc = nvrtc
        kind = "cubin" if nvrtc.has("nvrtcGetCUBIN") else "ptx"
        return {"version": version, "architectures": nvrtc.architectures(), "kind": kind, "mapped": mapped_libraries("libnvrtc")}

    @staticmethod
    def _compile(nvrtc: Nvrtc, request: dict[str, Any]) -> Answer:
        started = perf_counter()
        code, log = nvrtc.compile(request["source"], request["name"], request["options"], request["kind"])
        seconds = perf_counter() - started
        output = Path(request["output"])
        try:
            output.write_bytes(code.rstrip(b"\0") if request["kind"] == "ptx" else code)
        except OSError as error:
            return {"write_error": str(error)}
        return {"log": log, "compile_s": seconds}


def main() -> None:
    """Serve until stdin ends."""
    channel = private_stdout()
    server = NvrtcServer()
    for line in sys.stdin:
        channel.write(json.dumps(server.answer(json.loads(line))) + "\n")
        channel.flush()


if __name__ == "__main__":
    main()
