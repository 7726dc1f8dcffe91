"""Everything that was read about one machine, as frozen data that JSON can hold.

Every fact defaults to `NOT_ASKED`, so a partial snapshot (from a pasted text) is built from what the text says and nothing
else. Sizes are in bytes, clocks in MHz, powers in watts, temperatures in degrees Celsius, times in seconds. Additive changes
keep the schema's number.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any

from msgspec import Struct

from cudadoctor.model.binaries import BinaryPackage
from cudadoctor.model.fact import NOT_ASKED, Fact
from cudadoctor.model.versions import ComputeCapability, CudaVersion, DottedVersion, DriverRelease, SmTarget


class Record(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of all parts of a snapshot."""


class Platform(Enum):
    """The operating environment, as far as CUDA is concerned."""

    LINUX = "linux"
    WSL = "wsl"
    WINDOWS = "windows"
    MACOS = "macos"


class Host(Record, frozen=True):
    """Operating system and hardware platform."""

    platform: Fact[Platform] = NOT_ASKED
    architecture: Fact[str] = NOT_ASKED
    """As `uname -m` prints it: x86_64, aarch64."""
    os_name: Fact[str] = NOT_ASKED
    """For people, e.g. `Ubuntu 24.04.1 LTS`."""
    os_id: Fact[str] = NOT_ASKED
    """`ID` of os-release: ubuntu, debian, fedora, rhel, arch, opensuse-leap ..."""
    os_version: Fact[DottedVersion] = NOT_ASKED
    kernel_release: Fact[str] = NOT_ASKED
    glibc: Fact[DottedVersion] = NOT_ASKED
    secure_boot: Fact[bool] = NOT_ASKED
    jetson: Fact[str] = NOT_ASKED
    """The board's model where it is a Tegra/Jetson (device tree), else not_applicable."""


class ApiStatus(Record, frozen=True):
    """What a library or tool answered: code 0 is success; name and message are its own words."""

    code: int
    name: str = ""
    message: str = ""


class ModuleFlavour(Enum):
    """Which build of NVIDIA's kernel module is loaded."""

    PROPRIETARY = "proprietary"
    OPEN = "open"


class KernelModule(Record, frozen=True):
    """The loaded nvidia kernel module, from procfs."""

    driver_release: DriverRelease
    flavour: ModuleFlavour


class DeviceNode(Record, frozen=True):
    """A device file such as /dev/nvidia0: may this process read and write it?"""

    path: str
    accessible: bool
    mode: str = ""
    detail: str = ""


class LibraryOrigin(Enum):
    """Who put a library file there, judged from its path."""

    DRIVER = "driver"
    COMPAT = "compat"
    STUB = "stub"
    WSL = "wsl"
    TOOLKIT = "toolkit"
    WHEEL = "wheel"
    CONDA = "conda"
    SYSTEM = "system"
    OTHER = "other"


class LibraryCopy(Record, frozen=True):
    """One file that provides a shared library, and whether the loader would pick it."""

    soname: str
    path: str
    real_path: str
    origin: LibraryOrigin
    library_version: Fact[DottedVersion] = NOT_ASKED
    """From the file name (`libcuda.so.580.65.06`) or the header beside it."""
    via: str = ""
    """How the loader reaches it: `LD_LIBRARY_PATH`, `ld.so.cache`, `default folders`, `RPATH of ...`, or empty."""
    wins: bool = False
    """True for the copy that `dlopen(soname)` of a plain process would load."""


class PciDevice(Record, frozen=True):
    """A display or 3D controller on the PCI bus."""

    bus_id: str
    vendor_id: str
    """Four hex digits: 10de NVIDIA, 1002 AMD, 8086 Intel."""
    device_id: str
    kernel_driver: str = ""
    """The kernel driver bound to it (nvidia, nouveau, vfio-pci ...); empty where none."""


class Driver(Record, frozen=True):
    """The NVIDIA driver: kernel side, user-space side, and what its libraries answered."""

    driver_release: Fact[DriverRelease] = NOT_ASKED
    """The kernel driver's release; `others` holds what each further source said."""
    driver_cuda_version: Fact[CudaVersion] = NOT_ASKED
    """The newest CUDA version that the driver's API supports: not what is installed."""
    kernel_module: Fact[KernelModule] = NOT_ASKED
    loaded_modules: Fact[tuple[str, ...]] = NOT_ASKED
    """Names of loaded GPU-related kernel modules: nvidia, nvidia_uvm, nouveau, nvidia_drm, amdgpu ..."""
    module_file: Fact[str] = NOT_ASKED
    """Path of the nvidia module that is built for the running kernel (modules.dep); not_found where there is none."""
    nvml: Fact[ApiStatus] = NOT_ASKED
    """What nvmlInit answered."""
    nvidia_smi: Fact[ApiStatus] = NOT_ASKED
    """Exit code and error text of nvidia-smi."""
    cu_init: Fact[ApiStatus] = NOT_ASKED
    """What cuInit answered, with the environment as the user has it."""
    visible_device_count: Fact[int] = NOT_ASKED
    """cuDeviceGetCount with the environment as it is (CUDA_VISIBLE_DEVICES applied)."""
    device_nodes: Fact[tuple[DeviceNode, ...]] = NOT_ASKED
    pci_devices: Fact[tuple[PciDevice, ...]] = NOT_ASKED
    libcuda_loaded: Fact[str] = NOT_ASKED
    """Path of the libcuda that the driver child really mapped."""
    libcuda_copies: Fact[tuple[LibraryCopy, ...]] = NOT_ASKED
    profiling_restricted: Fact[bool] = NOT_ASKED
    """True where GPU performance counters are for administrators only (NVreg_RestrictProfilingToAdminUsers)."""
    fabric_manager: Fact[str] = NOT_ASKED
    """State of the fabric as NVML reports it, on NVSwitch systems."""


class ComputeMode(Enum):
    """Who may create contexts on a GPU."""

    DEFAULT = "default"
    EXCLUSIVE_PROCESS = "exclusive_process"
    EXCLUSIVE_THREAD = "exclusive_thread"
    PROHIBITED = "prohibited"


class Gpu(Record, frozen=True):
    """One GPU. `index` is nvidia-smi's (PCI order); a row that only CUDA saw counts in CUDA's order."""

    index: int
    name: Fact[str] = NOT_ASKED
    compute_capability: Fact[ComputeCapability] = NOT_ASKED
    uuid: Fact[str] = NOT_ASKED
    pci_bus_id: Fact[str] = NOT_ASKED
    memory_total_bytes: Fact[int] = NOT_ASKED
    memory_used_bytes: Fact[int] = NOT_ASKED
    compute_process_count: Fact[int] = NOT_ASKED
    mig_enabled: Fact[bool] = NOT_ASKED
    mig_devices: Fact[tuple[str, ...]] = NOT_ASKED
    """Names of MIG devices, e.g. `1g.10gb`."""
    compute_mode: Fact[ComputeMode] = NOT_ASKED
    persistence: Fact[bool] = NOT_ASKED
    driver_model: Fact[str] = NOT_ASKED
    """Windows: WDDM, TCC or MCDM."""
    ecc_enabled: Fact[bool] = NOT_ASKED
    ecc_uncorrected: Fact[int] = NOT_ASKED
    """Uncorrected volatile ECC errors."""
    pcie_generation: Fact[int] = NOT_ASKED
    pcie_generation_max: Fact[int] = NOT_ASKED
    pcie_width: Fact[int] = NOT_ASKED
    pcie_width_max: Fact[int] = NOT_ASKED
    sm_clock_mhz: Fact[int] = NOT_ASKED
    sm_clock_max_mhz: Fact[int] = NOT_ASKED
    throttle_reasons: Fact[tuple[str, ...]] = NOT_ASKED
    """Names from NVML, e.g. `sw_power_cap`, `hw_thermal_slowdown`, `gpu_idle`."""
    temperature_c: Fact[int] = NOT_ASKED
    power_w: Fact[float] = NOT_ASKED
    power_limit_w: Fact[float] = NOT_ASKED
    utilization_percent: Fact[int] = NOT_ASKED
    integrated: Fact[bool] = NOT_ASKED
    """True for Tegra/Jetson and other GPUs that share the host's memory."""
    multiprocessor_count: Fact[int] = NOT_ASKED
    nvlink_version: Fact[str] = NOT_ASKED
    """Of its active links, e.g. `4.0`; read on machines with several GPUs only, as the next two."""
    nvlinks_active: Fact[int] = NOT_ASKED
    nvlinks_total: Fact[int] = NOT_ASKED
    error: str = ""
    """What a tool said in place of this GPU's values, e.g. `GPU is lost`."""


class GpuPair(Record, frozen=True):
    """Two GPUs by index, the lower first, and what lies between them."""

    first: int
    second: int
    topology: Fact[str] = NOT_ASKED
    """The way over PCIe in nvidia-smi's words: PIX, PXB, PHB, NODE or SYS."""
    nvlinks: Fact[int] = NOT_ASKED
    """Active NVLinks that lead from one to the other, or from each to a switch."""
    peer_status: Fact[str] = NOT_ASKED
    """What NVML says of reading each other's memory: `OK`, or why not."""
    access: Fact[bool] = NOT_ASKED
    """May each read and write the other's memory, as cuDeviceCanAccessPeer says?"""
    native_atomics: Fact[bool] = NOT_ASKED
    """Does the link carry atomic operations (CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED)?"""


class HostCompiler(Record, frozen=True):
    """A C++ compiler that nvcc would or could use."""

    family: str
    """gcc, clang or msvc."""
    path: str
    compiler_version: Fact[DottedVersion] = NOT_ASKED
    chosen_by: str = ""
    """`NVCC_CCBIN`, `CUDAHOSTCXX`, `PATH`, `nvcc.profile`; empty where it is only present."""


class Toolkit(Record, frozen=True):
    """One CUDA toolkit (a folder with bin/nvcc or a part of one)."""

    root: str
    """The real folder, symlinks resolved."""
    nvcc: Fact[str] = NOT_ASKED
    toolkit_version: Fact[CudaVersion] = NOT_ASKED
    targets: Fact[tuple[SmTarget, ...]] = NOT_ASKED
    """What this nvcc itself says it can compile for."""
    found_by: tuple[str, ...] = ()
    """Every way that leads to it: `PATH`, `CUDA_HOME`, `CUDA_PATH`, `/usr/local/cuda`, `conda`, `nvidia wheels` ..."""
    aliases: tuple[str, ...] = ()
    """Paths that resolve to this root."""
    chosen_for_builds: bool = False
    """True for the toolkit that torch's extension builder and CMake would take."""
    nvrtc: Fact[str] = NOT_ASKED
    """Path of its libnvrtc."""
    missing_parts: tuple[str, ...] = ()
    """Parts that a full toolkit has and this one lacks: `cublas headers`, `libcudart.so`, `ptxas` ..."""
    packaging: str = ""
    """Who installed it, judged from the path: runfile, distribution package, conda, wheel."""


class TorchBuild(Enum):
    """What a torch binary was built for."""

    CUDA = "cuda"
    CPU = "cpu"
    ROCM = "rocm"
    XPU = "xpu"


class TorchDevice(Record, frozen=True):
    """A device as torch lists it."""

    index: int
    name: str
    compute_capability: ComputeCapability


class Torch(Record, frozen=True):
    """The torch of the examined interpreter.

    Installed but not importable: `imports` is Missing with the reason (crashed, failed, timeout) and the real words, and what
    the files tell without importing (version from the metadata, architectures from the binaries) is still known.
    """

    imports: Fact[bool] = NOT_ASKED
    torch_version: Fact[str] = NOT_ASKED
    """As `torch.__version__` prints it, local part included: 2.5.1+cu124."""
    build: Fact[TorchBuild] = NOT_ASKED
    torch_cuda_version: Fact[CudaVersion] = NOT_ASKED
    """The CUDA version that it was built with (`torch.version.cuda`)."""
    arch_list: Fact[tuple[SmTarget, ...]] = NOT_ASKED
    is_available: Fact[bool] = NOT_ASKED
    """`torch.cuda.is_available()`."""
    cuda_error: Fact[str] = NOT_ASKED
    """The text that initialising CUDA raised or warned with; not_applicable where it worked."""
    devices: Fact[tuple[TorchDevice, ...]] = NOT_ASKED
    cudnn_version: Fact[DottedVersion] = NOT_ASKED
    nccl_version: Fact[DottedVersion] = NOT_ASKED
    cxx11_abi: Fact[bool] = NOT_ASKED
    mapped_libraries: tuple[str, ...] = ()
    """CUDA-related libraries in the process after import, from the process map."""
    location: Fact[str] = NOT_ASKED


class Package(Record, frozen=True):
    """An installed package of the examined environment (or of a pasted list)."""

    name: str
    """Normalised: lower case, hyphens."""
    package_version: str
    build: str = ""
    """conda's build string."""
    channel: str = ""
    location: str = ""


class EnvironmentKind(Enum):
    """How the examined Python is installed."""

    VENV = "venv"
    CONDA = "conda"
    SYSTEM = "system"
    OTHER = "other"


class PythonEnvironment(Record, frozen=True):
    """The interpreter that runs the user's programs."""

    executable: Fact[str] = NOT_ASKED
    chosen_because: str = ""
    python_version: Fact[DottedVersion] = NOT_ASKED
    kind: Fact[EnvironmentKind] = NOT_ASKED
    installer: Fact[str] = NOT_ASKED
    """What installed torch there, or would: pip, uv, conda, mamba, pixi, poetry."""
    torch: Fact[Torch] = NOT_ASKED
    packages: Fact[tuple[Package, ...]] = NOT_ASKED
    """GPU-related packages only."""


class CudnnHeader(Record, frozen=True):
    """A cudnn header file and the version it declares."""

    path: str
    cudnn_version: DottedVersion


class SearchFolder(Record, frozen=True):
    """An entry of LD_LIBRARY_PATH: does it exist, and which libraries would it put in front of the loader's other choice?"""

    path: str
    exists: bool
    shadows: tuple[str, ...] = ()


class Libraries(Record, frozen=True):
    """CUDA run-time libraries as the loader sees them."""

    copies: Fact[tuple[LibraryCopy, ...]] = NOT_ASKED
    """cudart, cublas, cudnn, nccl, nvrtc ... of all origins, the winner of each soname marked."""
    cudnn_headers: Fact[tuple[CudnnHeader, ...]] = NOT_ASKED
    ld_library_path: Fact[tuple[SearchFolder, ...]] = NOT_ASKED


class Container(Record, frozen=True):
    """The container that this process runs in."""

    kind: Fact[str] = NOT_ASKED
    """docker, podman, kubernetes, singularity, lxc, other; not_applicable outside a container."""
    nvidia_toolkit: Fact[str] = NOT_ASKED
    """Version of the NVIDIA Container Toolkit, on a host."""
    docker_snap: Fact[bool] = NOT_ASKED
    injected_libraries: Fact[tuple[str, ...]] = NOT_ASKED
    """Driver libraries that the runtime mounted into the container."""


class Wsl(Record, frozen=True):
    """Windows Subsystem for Linux."""

    wsl_version: Fact[int] = NOT_ASKED
    windows_build: Fact[DottedVersion] = NOT_ASKED
    library_folder: Fact[tuple[str, ...]] = NOT_ASKED
    """Files of /usr/lib/wsl/lib."""
    linux_driver_packages: Fact[tuple[str, ...]] = NOT_ASKED
    """Linux display-driver packages or libraries installed inside the distribution."""


class ErrorSeen(Record, frozen=True):
    """An error text that the error table recognised, in what a probe, a child or a pasted text said."""

    kind: str
    """Row of matrices/error_patterns.toml."""
    text: str
    source: str
    line: int | None = None
    values: dict[str, str] = {}
    """What the pattern's named groups caught, e.g. {"library": "libcudnn.so.8"}."""


class TextReading(Record, frozen=True):
    """What a reader understood of one piece of a pasted text; keys as in the reader's documentation."""

    kind: str
    values: dict[str, Any] = {}


class ProbeRun(Record, frozen=True):
    """How a probe went: for `-vv` and for bug reports."""

    probe: str
    seconds: float
    outcome: str
    """ok, timeout, crashed."""
    detail: str = ""


class Snapshot(Record, frozen=True):
    """One machine."""

    host: Host = Host()
    driver: Driver = Driver()
    gpus: Fact[tuple[Gpu, ...]] = NOT_ASKED
    gpu_pairs: Fact[tuple[GpuPair, ...]] = NOT_ASKED
    """Every two GPUs; not asked where there is one."""
    toolkits: Fact[tuple[Toolkit, ...]] = NOT_ASKED
    host_compilers: Fact[tuple[HostCompiler, ...]] = NOT_ASKED
    python: PythonEnvironment = PythonEnvironment()
    libraries: Libraries = Libraries()
    binaries: Fact[tuple[BinaryPackage, ...]] = NOT_ASKED
    """Torch, and the packages of the examined environment with GPU code or CUDA needs; empty where there are none."""
    container: Container = Container()
    wsl: Wsl = Wsl()
    environment: Fact[dict[str, str]] = NOT_ASKED
    """The CUDA-related environment variables only (see matrices/env_vars.toml), values as they are."""
    errors: tuple[ErrorSeen, ...] = ()
    readings: tuple[TextReading, ...] = ()
    probe_runs: tuple[ProbeRun, ...] = ()

    def values_read(self, kind: str) -> Mapping[str, Any]:
        """What the reader of one kind of text understood; empty where it read nothing."""
        return next((reading.values for reading in self.readings if reading.kind == kind), {})
