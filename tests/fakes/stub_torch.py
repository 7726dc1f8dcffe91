"""Writes a virtual environment whose torch is a stub: it says what it is told, and computes without numbers."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_INIT = '''
import json, os, sys, time, types, warnings
from pathlib import Path

said = json.loads((Path(__file__).parent / "said.json").read_text())
print("noise that a package prints while it is imported", flush=True)
if said["on_import"] == "hang":
    time.sleep(3600)
elif said["on_import"] == "segfault":
    os.kill(os.getpid(), 11)
elif said["on_import"]:
    raise ImportError(said["on_import"])

from . import version

__version__ = version.__version__


class Tensor:
    """One number that stands for all values: what keeps values keeps it, what computes gives 1."""

    def __init__(self, value=1.0, on_gpu=False):
        self.value, self.on_gpu = value, on_gpu

    def same(self, *arguments):
        return self

    half = double = max = same

    def abs(self):
        return Tensor(abs(self.value))

    def to(self, device):
        return Tensor(self.value, True)

    def cpu(self):
        return Tensor(self.value)

    def __sub__(self, other):
        return Tensor(self.value - getattr(other, "value", 0.25))

    def __float__(self):
        return self.value

    def compute(self, *arguments):
        if self.on_gpu and said["launch_error"]:
            raise RuntimeError(said["launch_error"])
        return Tensor(said["gpu_result"] if self.on_gpu else 1.0, self.on_gpu)

    __matmul__ = compute

    def __add__(self, other):
        return Tensor(self.value + getattr(other, "value", other))

    __radd__ = __add__

    def __mul__(self, factor):
        return Tensor(self.value * factor)

    def __mod__(self, divisor):
        return Tensor(self.value % divisor)

    def __eq__(self, other):
        return Tensor(self.value == other)

    def __invert__(self):
        return Tensor(not self.value)

    def __int__(self):
        return int(self.value)

    float = sum = same
    transpose = masked_fill = triu = bool = softmax = __truediv__ = compute


class Nothing:
    def __init__(self, *arguments, **options):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


class Generator:
    def manual_seed(self, seed):
        return self


def rand(*shape, generator=None):
    return Tensor()


def ones(*shape):
    return Tensor()


no_grad = Nothing
_C = types.SimpleNamespace(_GLIBCXX_USE_CXX11_ABI=said["cxx11_abi"])
if said["arch_list"] is not None:
    _C._cuda_getArchFlags = lambda: " ".join(said["arch_list"])


def init():
    if said["on_init"] == "hang":
        time.sleep(3600)
    elif said["on_init"] == "segfault":
        os.kill(os.getpid(), 11)
    for text in said["warnings"]:
        warnings.warn(text)
    if said["cuda_error"]:
        raise RuntimeError(said["cuda_error"])


cuda = types.SimpleNamespace(
    init=init,
    is_available=lambda: said["is_available"],
    device_count=lambda: len(said["devices"]),
    get_device_name=lambda index: said["devices"][index][0],
    get_device_capability=lambda index: tuple(int(part) for part in said["devices"][index][1].split(".")),
    get_arch_list=lambda: said["arch_list"] if said["is_available"] else [],
    device=Nothing,
    synchronize=lambda: None,
    nccl=types.SimpleNamespace(version=lambda: (2, 21, 5)),
)
cuda.set_device = lambda index: None
int64 = "int64"


def arange(count, dtype=None):
    return Tensor(1)


def zeros(count, device=None):
    return Tensor(0.0, True)


class Group:
    """Real processes that meet in a folder: every round each writes its number and waits for those of the others."""

    def join(self, backend, store, rank, world_size, timeout):
        self.store, self.rank, self.world, self.round = store.path, rank, world_size, 0
        self.fault = said["group"].get(str(rank), "")
        if self.fault == "hang":
            time.sleep(3600)
        elif self.fault == "segfault":
            os.kill(os.getpid(), 11)
        elif self.fault == "exit":
            os._exit(3)
        elif self.fault == "garbage":
            os.write(3, b"\\xff\\xfe not JSON\\n{}\\n[1]\\n" * 3)
            os._exit(0)
        elif self.fault and self.fault != "wrong":
            raise RuntimeError(self.fault)

    def all_reduce(self, tensor):
        if tensor.value == 0:
            return  # the one that is timed: files are no links
        self.round += 1
        mine = Path("%s.%d.%d" % (self.store, self.round, self.rank))
        new = Path("%s.new" % mine)
        new.write_text(repr(tensor.value))
        new.rename(mine)
        others = [Path("%s.%d.%d" % (self.store, self.round, rank)) for rank in range(self.world)]
        while not all(other.exists() for other in others):
            time.sleep(0.005)
        tensor.value = sum(float(other.read_text()) for other in others) + (self.fault == "wrong")


class FileStore:
    """A number that all ranks add to: one file a rank."""

    def __init__(self, path, world):
        self.path = path

    def add(self, name, number):
        if number:
            Path("%s.%s.%d" % (self.path, name, os.getpid())).touch()
        return len(list(Path(self.path).parent.glob("*.%s.*" % name)))


_group = Group()
distributed = types.SimpleNamespace(
    FileStore=FileStore, init_process_group=_group.join, all_reduce=_group.all_reduce
)
backends = types.SimpleNamespace(cudnn=types.SimpleNamespace(version=lambda: said["cudnn"]))
functional = types.SimpleNamespace(
    scaled_dot_product_attention=lambda q, k, v, is_causal: q.compute(),
    conv2d=lambda image, weight: image.compute(),
)
nn = types.SimpleNamespace(functional=functional)
'''


@dataclass(frozen=True)
class StubTorch:
    """What the stub says of itself and of the GPUs."""

    version: str
    cuda: str | None = None
    arch_list: Sequence[str] | None = None
    devices: Sequence[tuple[str, str]] = ()
    """Name and compute capability of each."""
    is_available: bool = True
    cuda_error: str = ""
    """What torch.cuda.init() raises."""
    warnings: Sequence[str] = ()
    on_import: str = ""
    """`hang`, `segfault`, or the text of an ImportError."""
    on_init: str = ""
    """`hang` or `segfault`."""
    launch_error: str = ""
    gpu_result: float = 1.0
    """What every computation on a GPU gives; the CPU gives 1."""
    group: Mapping[str, str] = field(default_factory=dict)
    """What happens to ranks of an all-reduce: `hang`, `segfault`, `exit`, `garbage`, `wrong`, or the text of an error."""
    cudnn: int | None = 90100
    cxx11_abi: bool = False


def make_environment(folder: Path, torch: StubTorch | None = None, packages: Sequence[str] = ()) -> Path:
    """A virtual environment at `folder` of the Python that runs the tests; gives its interpreter.

    `packages` are further installed distributions, as `name==version`.
    """
    site = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    site.mkdir(parents=True)
    (folder / "bin").mkdir()
    real = Path(sys.executable).resolve()
    (folder / "pyvenv.cfg").write_text(f"home = {real.parent}\ninclude-system-site-packages = false\n")
    for name in ("python", "python3"):
        (folder / "bin" / name).symlink_to(real)
    for package in packages:
        add_distribution(site, *package.split("=="))
    if torch is not None:
        write_stub_torch(site, torch)
    return folder / "bin" / "python"


def write_stub_torch(site: Path, torch: StubTorch) -> None:
    """The package and its metadata in a site-packages folder."""
    add_distribution(site, "torch", torch.version)
    (site / "torch").mkdir(parents=True)
    (site / "torch" / "__init__.py").write_text(_INIT)
    (site / "torch" / "said.json").write_text(json.dumps(vars(torch)))
    lines = (f"__version__ = {torch.version!r}", f"cuda: Optional[str] = {torch.cuda!r}", "hip: Optional[str] = None")
    (site / "torch" / "version.py").write_text("\n".join(("from typing import Optional", "", *lines, "")))


def add_distribution(site: Path, name: str, version: str, installer: str = "pip") -> None:
    """The metadata folder of an installed package, as pip writes it."""
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (folder / "INSTALLER").write_text(f"{installer}\n")
