"""Source to loadable code: NVRTC in a child process, nvcc as a program, both behind the compile cache."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec

from cudadoctor.gpu.catalog import KernelSpec
from cudadoctor.gpu.child import Child, ChildError, ChildFailure, child_argv
from cudadoctor.gpu.compile_cache import CompileCache, cache_key, identities
from cudadoctor.gpu.sources import inlined_source
from cudadoctor.model.proof import ApiError
from cudadoctor.model.versions import CodeKind, ComputeCapability, CudaVersion, SmTarget
from cudadoctor.process import Completed, ProgramNotFoundError, RunningProgram

NVCC_VARIABLES = ("NVCC_CCBIN", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "CPATH", "CPLUS_INCLUDE_PATH", "PATH")
"""What in the environment changes nvcc's output or its choice of host compiler."""
HOST_COMPILERS = ("g++", "gcc", "clang++", "cl")
STANDARD = "-std=c++17"
OLDEST_TOOLKIT = CudaVersion.of(11, 0)
"""The first whose compilers know C++17 (CUDA 11.0 release notes)."""
NVCC_REFUSALS = ("Unsupported gpu architecture", "is not defined for option 'std'")
"""What nvcc says where it is too old for the GPU or for C++17: nothing is wrong with it."""
NVRTC_REFUSAL = "invalid value for --gpu-architecture"
"""What NVRTC says of a target that it does not know."""
MAX_MESSAGE_CHARS = 400
NO_HOST_COMPILER = "Failed to preprocess host compiler properties"
"""What nvcc 13.0 says where it can start no host compiler (seen)."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """Code that the driver can load. `compile_s` is None where it came from the cache."""

    path: Path
    target: SmTarget
    compile_s: float | None
    log: str = ""


class CompileError(Exception):
    """The compiler ran and gave no code; the text is its most telling line, `error` what an API returned."""

    def __init__(self, text: str, log: str = "", error: ApiError | None = None) -> None:
        super().__init__(text)
        self.log = log
        self.error = error


class CompilerUnavailableError(Exception):
    """The compiler cannot be used here (absent, not loadable) or cannot target this GPU: a reason to skip."""


class CompilerStuckError(Exception):
    """The compiler hung, or its output could not be kept: nothing is known about the code."""


@dataclass(frozen=True, slots=True)
class Workshop:
    """Where compilers take sources from and leave code."""

    kernels: Path
    folder: Path
    cache: CompileCache


class NvrtcCompiler:
    """One libnvrtc, in a child that is started when first needed. Its methods may be called from several threads."""

    def __init__(self, library: str, env: Mapping[str, str], workshop: Workshop) -> None:
        self.library = library
        self._env = dict(env)
        self._workshop = workshop
        self._child: Child | None = None
        self._lock = threading.Lock()
        self._kind = "cubin"
        self._closed = False
        self.toolkit_version: CudaVersion | None = None
        self.targets: tuple[SmTarget, ...] | None = None
        """What it says it supports; None before `load` and where it is too old to say."""

    def load(self, timeout_s: float) -> None:
        """Load the library and ask what it supports, once; raises CompilerUnavailableError, CompilerStuckError, CompileError."""
        with self._lock:
            if self._child is not None:
                return
            answer = self._ask({"do": "load", "library": self.library}, timeout_s)
            self._kind = answer["kind"]
            self.toolkit_version = CudaVersion.of(*answer["version"])
            if self.toolkit_version < OLDEST_TOOLKIT:
                raise CompilerUnavailableError(f"NVRTC {self.toolkit_version} does not know C++17; {OLDEST_TOOLKIT} and newer do")
            numbers = answer["architectures"]
            if numbers is not None:
                self.targets = tuple(ComputeCapability.from_number(number).sm for number in numbers)

    def compile(self, kernel: KernelSpec, target: SmTarget, timeout_s: float) -> Compiled:
        """Code of `kernel` for `target`: a cubin, from NVRTC before 11.1 PTX; raises as `load`."""
        deadline = monotonic() + timeout_s
        self.load(timeout_s)
        source = inlined_source(self._workshop.kernels, kernel.file)
        built = target if self._kind == "cubin" else SmTarget(CodeKind.PTX, target.compute_capability, target.suffix)
        options = [f"--gpu-architecture={built}", STANDARD, *(f"-D{define}" for define in kernel.defines)]
        key = cache_key("nvrtc", source, options, self._kind, str(self.toolkit_version), identities(self._parts()))
        cached = self._workshop.cache.get(key)
        if cached is not None:
            return Compiled(cached, built, None)
        output = self._workshop.folder / f"{key}.{self._kind}"
        request = {
            "do": "compile",
            "source": source,
            "name": kernel.file,
            "options": options,
            "kind": self._kind,
            "output": str(output),
        }
        with self._lock:
            answer = self._ask(request, deadline - monotonic())
        self._workshop.cache.put(key, output)
        return Compiled(output, built, answer["compile_s"], answer["log"])

    def _parts(self) -> list[Path]:
        library = Path(self.library)
        return [library, *sorted(library.parent.glob("libnvrtc-builtins*"))]

    def _ask(self, request: Mapping[str, object], timeout_s: float) -> dict[str, Any]:
        if self._closed:
            raise CompilerStuckError("interrupted")
        try:
            if self._child is None:
                self._child = Child(child_argv("nvrtc_child"), self._env)
            answer = self._child.ask(request, timeout_s)
        except ChildError as error:
            self._end_child()
            if error.failure is ChildFailure.CRASHED:
                raise CompileError(f"the process that uses {self.library} {error}") from error
            raise CompilerStuckError(f"the process that uses {self.library} {error}") from error
        if "load_error" in answer:
            self._end_child()
            raise CompilerUnavailableError(f"{self.library} cannot be used: {answer['load_error']}")
        if "write_error" in answer:
            raise CompilerStuckError(f"the compiled kernel cannot be written: {answer['write_error']}")
        if "error" in answer and NVRTC_REFUSAL in answer["error"]["message"]:
            raise CompilerUnavailableError(f"NVRTC {self.toolkit_version} does not know the target: {request['options']}")
        if "error" in answer:
            result = msgspec.convert(answer["error"], ApiError)
            raise CompileError(f"{result.name}: {telling_line(result.message.partition(chr(10))[2])}", result.message, result)
        return answer

    def _end_child(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None

    def close(self) -> None:
        """End the child for good."""
        self._closed = True
        self._end_child()


class NvccCompiler:
    """One nvcc with the host compiler that it finds in the environment `env`. Its methods may be called from several threads."""

    def __init__(self, nvcc: str, label: str, env: Mapping[str, str], workshop: Workshop) -> None:
        """`label` names its version; it tells releases apart where `nvcc` is a wrapper script that stays the same."""
        self.nvcc = nvcc
        self._label = label
        self._running: set[RunningProgram] = set()
        self._closed = False
        self._env = {**env, "LC_ALL": "C"}
        self._workshop = workshop

    def compile(self, kernel: KernelSpec, target: SmTarget, timeout_s: float) -> Compiled:
        """A cubin of `kernel` for `target`; raises CompilerUnavailableError, CompilerStuckError, CompileError."""
        source = inlined_source(self._workshop.kernels, kernel.file)
        options = ["-cubin", f"-arch={target}", STANDARD, *(f"-D{define}" for define in kernel.defines)]
        variables = [self._env.get(name, "") for name in NVCC_VARIABLES]
        key = cache_key("nvcc", self._label, source, options, variables, identities(self._parts()))
        cached = self._workshop.cache.get(key)
        if cached is not None:
            return Compiled(cached, target, None)
        text, output = self._workshop.folder / f"{key}.cu", self._workshop.folder / f"{key}.cubin"
        text.write_text(source, encoding="utf-8")
        completed = self._run([*options, "-o", str(output), str(text)], timeout_s)
        if not output.is_file():
            raise CompileError(f"nvcc ended with success but made no cubin: {telling_line(completed.stderr)}", completed.stderr)
        self._workshop.cache.put(key, output)
        return Compiled(output, target, completed.seconds, completed.stderr)

    def _run(self, arguments: list[str], timeout_s: float) -> Completed:
        if self._closed:
            raise CompilerStuckError("interrupted")
        deadline = monotonic() + timeout_s
        try:
            running = RunningProgram([self.nvcc, *arguments], self._env)
        except ProgramNotFoundError as error:
            raise CompilerUnavailableError(str(error)) from error
        self._running.add(running)
        completed = running.finish(deadline)
        self._running.discard(running)
        if completed.timed_out:
            raise CompilerStuckError(f"{self.nvcc} did not end within {timeout_s:.0f} s")
        if completed.signal_name:
            raise CompileError(f"nvcc died of {completed.signal_name}", completed.stderr)
        if completed.exit_code:
            log = f"{completed.stdout}{completed.stderr}"
            if NO_HOST_COMPILER in log and not self._has_host_compiler():
                raise CompilerUnavailableError("nvcc finds no host compiler (g++, gcc, clang++) on the PATH")
            if any(refusal in log for refusal in NVCC_REFUSALS):
                raise CompilerUnavailableError(f"nvcc is too old for it: {telling_line(log)}")
            raise CompileError(f"nvcc ended with exit code {completed.exit_code}: {telling_line(log)}", log)
        return completed

    def _has_host_compiler(self) -> bool:
        names = (self._env.get("NVCC_CCBIN", ""), *HOST_COMPILERS)
        return any(shutil.which(name, path=self._env.get("PATH", os.defpath)) for name in names if name)

    def close(self) -> None:
        """Kill what still runs."""
        self._closed = True
        for running in tuple(self._running):
            running.kill()

    def _parts(self) -> list[Path]:
        """The programs whose replacement changes the code: those of the toolkit, and the host compilers on the PATH."""
        real = Path(self.nvcc).resolve()
        toolkit = [real, real.parent / "ptxas", real.parent / "cudafe++", real.parent.parent / "nvvm" / "bin" / "cicc"]
        chosen = self._env.get("NVCC_CCBIN", "")
        found = [shutil.which(name, path=self._env.get("PATH", "")) for name in HOST_COMPILERS]
        return [*toolkit, *([Path(chosen)] if chosen else []), *(Path(path) for path in found if path)]


def telling_line(log: str) -> str:
    """The line of a compiler's output that says most: the first with an error, else the last one."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower() or "fatal" in line.lower()]
    chosen = errors[0] if errors else lines[-1] if lines else "no output"
    return chosen[:MAX_MESSAGE_CHARS]
