"""The matrix: every external thing times every way in which it can be hostile, with what may change in the report."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cudadoctor.model.fact import Known
from cudadoctor.probes.container import read_kind
from cudadoctor.system import RealSystem
from tests.hostile import hostilities as h
from tests.hostile.doctor import ImpossibleHereError
from tests.hostile.judge import Expected
from tests.hostile.machine import Prey

Prepare = Callable[[Prey], Mapping[str, Any]]
"""Makes a thing hostile; gives what the place of the run has besides."""
NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Cell:
    """One thing with one hostility."""

    thing: str
    hostility: str
    prepare: Prepare
    expected: Expected

    @property
    def name(self) -> str:
        """For people and for pytest."""
        return f"{self.thing}: {self.hostility}"


def own(path: Path, machine: Path) -> None:
    """Make sure that nothing outside of the machine is made hostile: a link to a real program becomes a copy of it."""
    if path.is_symlink():
        real = path.resolve()
        path.unlink()
        shutil.copy(real, path)
    if not path.parent.resolve().is_relative_to(machine.resolve()):
        raise ValueError(f"{path} lies outside of {machine}")


@dataclass(frozen=True)
class Thing:
    """One external thing at a path."""

    name: str
    hostilities: Mapping[str, h.Hostility]
    path: Callable[[Prey], Path]
    expected: Expected
    otherwise: Mapping[str, Expected] = field(default_factory=dict)
    """What differs with single hostilities."""
    on_hosts_only: bool = False
    """Is it something that the doctor leaves alone inside a container?"""

    def cells(self) -> Iterator[Cell]:
        """One for each hostility."""
        for name, hostility in self.hostilities.items():
            expected = self.otherwise.get(name, self.expected)
            yield Cell(self.name, name, self._prepare(hostility), expected)

    def _prepare(self, hostility: h.Hostility) -> Prepare:
        def prepare(prey: Prey) -> Mapping[str, Any]:
            if self.on_hosts_only and isinstance(read_kind(RealSystem()), Known):
                raise ImpossibleHereError(f"inside a container, where {self.name} is not looked at")
            path = self.path(prey)
            own(path, prey.folder)
            try:
                hostility(path)
            except FileNotFoundError as error:
                raise ImpossibleHereError(f"no {self.name} on this machine") from error
            return {"conditions": {"humble": True}}

        return prepare


LINKED = r"libraries\.copies\[.*\]\.real_path"
"""Where a library that is a link leads to is what it is."""
SMI = Expected(
    ("driver.nvidia_smi", r"errors"),
    errors=("nvidia-smi-hangs", "nvidia-smi-fails"),
    exits=(0, 1, 4),
    other_values=(r"driver\.nvidia_smi\.(code|message)",),
    reasons=("driver", "gpus"),
)
NVCC = Expected(
    ("toolkits", "errors", "libraries"),
    ("nvcc",),
    exits=(0, 1, 4),
    errors=("kernel-proof-fails", "nvcc-fails"),
    other_values=(r"toolkits\[.*\]\.(missing_parts|toolkit_version)",),
)
COMPILERS = Expected(("host_compilers", "errors"), ("nvcc",), other_values=(r"host_compilers\[.*/gcc\]",))
PYTHON = Expected(("python", "errors", "libraries", "toolkits"), ("torch",), exits=(0, 1, 4), other_values=("python.executable",))
TORCH = Expected(("python.torch", "errors"), ("torch",), errors=("torch-import-fails", "torch-proof-fails"), exits=(0, 1, 4))
PACKAGES = Expected(
    ("python", "libraries", "errors", "toolkits"),
    ("torch",),
    errors=("torch-import-fails",),
    exits=(0, 1, 4),
    other_values=("python.kind", "python.packages"),
)
CONTAINER = Expected(("container",))
LIBCUDA = Expected(
    ("driver.cu_init", "driver.visible_device_count", "driver.libcuda", "gpus", "errors", "libraries", "python.torch"),
    ("driver-jit", "nvcc", "nvrtc", "torch"),
    errors=("libcuda-missing", "driver-call-hangs", "kernel-proof-fails"),
    exits=(0, 1, 4),
)
NVML = Expected(
    ("driver", "gpus", "errors", "libraries"),
    errors=("driver-call-hangs",),
    exits=(0, 1, 4),
    other_values=(r"driver\.nvml\.", LINKED),
)
NVRTC = Expected(
    ("toolkits", "libraries", "errors"),
    ("nvrtc",),
    errors=("kernel-proof-fails",),
    exits=(0, 1, 4),
    other_values=("libraries.copies",),
)
TOOLKIT_FILES = Expected(("toolkits", "libraries"), other_values=(r"toolkits\[.*\]\.(missing_parts|toolkit_version)",))

THINGS = (
    Thing(
        "nvidia-smi",
        h.PROGRAM,
        lambda prey: prey.folder / "bin" / "nvidia-smi",
        SMI,
    ),
    Thing(
        "nvcc",
        h.PROGRAM,
        lambda prey: prey.toolkit / "bin" / "nvcc",
        NVCC,
    ),
    Thing("g++", h.PROGRAM, lambda prey: prey.folder / "system" / "g++", COMPILERS),
    Thing("clang++", h.PROGRAM, lambda prey: prey.folder / "bin" / "clang++", COMPILERS),
    Thing("g++-11", h.PROGRAM, lambda prey: prey.folder / "bin" / "g++-11", COMPILERS),
    Thing(
        "Python",
        h.PROGRAM,
        lambda prey: prey.folder / "venv" / "bin" / "python",
        PYTHON,
    ),
    Thing(
        "nvidia-ctk",
        h.PROGRAM,
        lambda prey: prey.folder / "bin" / "nvidia-ctk",
        CONTAINER,
        on_hosts_only=True,
    ),
    Thing("docker", h.PROGRAM, lambda prey: prey.folder / "bin" / "docker", CONTAINER, on_hosts_only=True),
    Thing(
        "libcuda",
        h.LIBRARY,
        lambda prey: prey.folder / "lib" / "libcuda.so.535.104.05",
        LIBCUDA,
    ),
    Thing(
        "libnvidia-ml",
        h.LIBRARY,
        lambda prey: prey.folder / "lib" / "libnvidia-ml.so.535.104.05",
        NVML,
    ),
    Thing(
        "libnvrtc",
        {name: make for name, make in h.LIBRARY.items() if name not in {"absent", "unreadable", "truncated"}},
        lambda prey: prey.toolkit / "lib64" / "libnvrtc.so.12",
        NVRTC,
    ),
    Thing(
        "libcudart",
        h.LIBRARY,
        lambda prey: prey.folder / "lib" / "libcudart.so.12",
        Expected(("libraries",), other_values=(LINKED,)),
    ),
    Thing(
        "version.json",
        h.FILE,
        lambda prey: prey.toolkit / "version.json",
        TOOLKIT_FILES,
    ),
    Thing(
        "cuDNN header",
        h.FILE,
        lambda prey: prey.toolkit / "include" / "cudnn_version.h",
        TOOLKIT_FILES,
    ),
    Thing(
        "CUDA headers",
        h.FOLDER,
        lambda prey: prey.toolkit / "include",
        TOOLKIT_FILES,
    ),
    Thing("libraries' folder", h.FOLDER, lambda prey: prey.toolkit / "lib64", TOOLKIT_FILES),
    Thing("pyvenv.cfg", h.FILE, lambda prey: prey.folder / "venv" / "pyvenv.cfg", PACKAGES),
    Thing("site-packages", h.FOLDER, lambda prey: prey.site, PACKAGES),
    Thing("torch's folder", h.FOLDER, lambda prey: prey.site / "torch", PACKAGES),
    Thing(
        "torch/version.py",
        h.FILE,
        lambda prey: prey.site / "torch" / "version.py",
        TORCH,
        {"endless numbers": replace(TORCH, other_values=(r"python\.torch\.(torch_version|location)",))},
    ),
    Thing("torch/__init__.py", h.FILE, lambda prey: prey.site / "torch" / "__init__.py", TORCH),
)

TORCH_CODE: Mapping[str, str] = {
    "hangs": "import time; time.sleep(3600)",
    "SIGSEGV": "import os; os.kill(os.getpid(), 11)",
    "SIGKILL": "import os; os.kill(os.getpid(), 9)",
    "exit 0, silent": "import os; os._exit(0)",
    "sys.exit": "import sys; sys.exit(0)",
    "KeyboardInterrupt": "raise KeyboardInterrupt",
    "endless recursion": "def f(): return f()\nf()",
    "megabytes": "import os\nfor n in range(1024): os.write(1, b'x' * 65536)",
    "endless errors": "import os\nwhile True: os.write(2, b'x' * 65536)",
    "no UTF-8": "import sys; sys.stdout.buffer.write(b'\\xff\\xfe\\n'); raise ImportError('caf\\udce9 \\x1b[31m')",
    "localised": "raise ImportError('共有ライブラリを開けません: libcudart.so.12')",
    "closes everything": "import os; os.closerange(0, 64); import time; time.sleep(3600)",
    "child keeps pipes": "import os, time\nif os.fork() == 0: time.sleep(3600)\nraise ImportError('no')",
    "prints the protocol": 'print(\'{"event": "torch_imported", "version": 7}\'); raise ImportError(\'no\')',
    "changes folder": "import os; os.chdir('/nowhere')",
    "odd version": "__version__ = object()\nclass version: cuda = 12; hip = []; xpu = b''\ncuda = None",
    "eats memory": "x = [bytearray(1 << 20) for n in range(64)]; raise MemoryError",
    "exhausts descriptors": "import os\nwhile True: os.dup(1)",
}
"""What the module torch may do when it is imported."""


def torch_cells() -> Iterator[Cell]:
    """Modules called torch that misbehave."""
    for name, code in TORCH_CODE.items():

        def prepare(prey: Prey, code: str = code) -> Mapping[str, Any]:
            (prey.site / "torch" / "__init__.py").write_text(code + "\n")
            return NOTHING

        yield Cell("torch", name, prepare, TORCH)
