"""Faults of toolkits and host compilers: targets, PTX, parts that are missing, variables that lead astray."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.fakes.fakebin import python_program
from tests.real_faults.fault import Check, Expected, Fault
from tests.real_faults.machine import Machine, NotHereError
from tests.real_faults.stand_ins import newer_gcc, toolkit_without, wrapped_nvcc

NEWER_PTX = Path(__file__).parents[1] / "gpu" / "gemm_f32_tiled_cuda_13_5.ptx"
"""Written by NVRTC 13.5 (`--gpu-architecture=compute_75`): PTX ISA 9.5, which a driver before R620 does not know."""
NEWER_PTX_CUDA = 13050
FUTURE_GCC = 19
"""Newer than any that a toolkit of CUDA 13 accepts (its host_config.h)."""
DRIVER_WORKS = {"driver-jit": "passed"}


def code_for_another_architecture(machine: Machine, folder: Path) -> Check:
    """An nvcc that makes code of another major than the GPU's of every target.

    It refuses targets for one architecture only, so that the plain mma.sync kernels are compiled.
    """
    other = "sm_80" if machine.capability.major != 8 else "sm_90"
    wrong = (
        "if any(word.startswith('-arch=') and word[-1] in 'af' for word in argv):\n"
        "    print('nvcc fatal   : Unsupported gpu architecture', file=sys.stderr)\n    raise SystemExit(1)\n"
        f"argv = ['-arch={other}' if word.startswith('-arch=') else word for word in argv]"
    )
    own = f"sm_{machine.capability.major}{machine.capability.minor}"
    targets = "\n".join(dict.fromkeys(("sm_80", "sm_90", own)))
    return Check(machine.with_toolkit(wrapped_nvcc(machine, folder / "cuda", wrong, targets)))


def ptx_newer_than_the_driver(machine: Machine, folder: Path) -> Check:
    if machine.driver_cuda.major * 1000 + machine.driver_cuda.minor * 10 >= NEWER_PTX_CUDA:
        raise NotHereError("this driver knows PTX 9.5")
    newer = f"output = argv[argv.index('-o') + 1]\nshutil.copyfile({str(NEWER_PTX)!r}, output)\nraise SystemExit(0)"
    return Check(machine.with_toolkit(wrapped_nvcc(machine, folder / "cuda", newer)))


def lacking(*paths: str) -> Callable[[Machine, Path], Check]:
    """The machine's toolkit without these of its files."""

    def make(machine: Machine, folder: Path) -> Check:
        return Check(machine.with_toolkit(toolkit_without(machine, folder / "cuda", paths)))

    return make


def nvcc_of_another_processor(machine: Machine, folder: Path) -> Check:
    """An nvcc that the kernel refuses to start: ELF for a machine that it is not."""
    root = toolkit_without(machine, folder / "cuda", ())
    program = root / "bin" / "nvcc"
    head = bytearray(program.read_bytes()[:4096])
    head[18:20] = (0xF3).to_bytes(2, "little")  # e_machine: RISC-V
    program.write_bytes(bytes(head))
    return Check(machine.with_toolkit(root))


def gcc_that_nvcc_refuses(machine: Machine, folder: Path) -> Check:
    return Check({"NVCC_CCBIN": str(newer_gcc(machine, folder, FUTURE_GCC))})


def no_compiler(machine: Machine, folder: Path) -> Check:
    """A PATH with nvidia-smi and nothing else."""
    (folder / "bin").mkdir()
    (folder / "bin" / "nvidia-smi").symlink_to(machine.program("nvidia-smi"))
    unset = dict.fromkeys(("CUDA_HOME", "CUDA_PATH", "CC", "CXX", "CUDAHOSTCXX", "NVCC_CCBIN"))
    return Check({**unset, "PATH": str(folder / "bin")}, options=("--python", machine.python))


def nothing_of_cuda_on_the_path(machine: Machine, folder: Path) -> Check:
    """Everything on PATH but the toolkit, which lies in its usual folder."""
    if not Path("/usr/local/cuda/bin/nvcc").exists():
        raise NotHereError("no toolkit in /usr/local/cuda")
    return Check({"CUDA_HOME": None, "CUDA_PATH": None, "PATH": ":".join(machine.path_without_toolkit)})


def home_is(value: str) -> Callable[[Machine, Path], Check]:
    """CUDA_HOME with a value; `{cuda}` is the machine's toolkit, `{here}` a folder of the fault's own."""
    return lambda machine, folder: Check({"CUDA_HOME": value.format(cuda=machine.toolkit, here=folder)})


def older_toolkit_in_home(machine: Machine, folder: Path) -> Check:
    """CUDA_HOME left over from a toolkit of another major; its nvcc is the machine's and says that it is of 11.8."""
    body = "if '--version' in sys.argv:\n    print('Cuda compilation tools, release 11.8, V11.8.89')\n    raise SystemExit(0)\n"
    root = toolkit_without(machine, folder / "cuda-11.8", ("bin/nvcc", "version.json"))
    real = str(machine.toolkit / "bin" / "nvcc")
    python_program(root / "bin" / "nvcc", f"{body}os.execv({real!r}, [{real!r}, *sys.argv[1:]])\n")
    return Check({"CUDA_HOME": str(root)})


def variable(name: str, value: str) -> Callable[[Machine, Path], Check]:
    return lambda machine, folder: Check({name: value})


INSTALL = r"cuda-toolkit|cuda_\d|nvidia-cuda|conda install"
FAULTS = (
    Fault(
        "nvcc makes code for another architecture",
        code_for_another_architecture,
        Expected("kernel-proof-fails", "cudadoctor explain 209", layers={**DRIVER_WORKS, "nvcc": "failed"}, exit_codes=(1,)),
    ),
    Fault(
        "PTX newer than the driver",
        ptx_newer_than_the_driver,
        Expected(
            "ptx-newer-than-driver", "cudadoctor archs|CUDA_ARCH", layers={**DRIVER_WORKS, "nvcc": "failed"}, exit_codes=(1,)
        ),
    ),
    Fault("a toolkit without cicc", lacking("nvvm/bin/cicc"), Expected("toolkit-incomplete", INSTALL, layers=DRIVER_WORKS)),
    Fault("a toolkit without ptxas", lacking("bin/ptxas"), Expected("toolkit-incomplete", INSTALL, layers=DRIVER_WORKS)),
    Fault(
        "a toolkit without its headers",
        lacking("include", "targets/x86_64-linux/include", "targets/sbsa-linux/include"),
        Expected("toolkit-incomplete", INSTALL, layers=DRIVER_WORKS),
    ),
    Fault(
        "a toolkit without libraries",
        lacking("lib64", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"),
        Expected("toolkit-incomplete", INSTALL, layers=DRIVER_WORKS),
    ),
    Fault("an nvcc that does not start", nvcc_of_another_processor, Expected("nvcc-fails", INSTALL, layers=DRIVER_WORKS)),
    Fault(
        "a gcc newer than nvcc accepts",
        gcc_that_nvcc_refuses,
        Expected("host-compiler-too-new", "NVCC_CCBIN|g\\+\\+-", layers=DRIVER_WORKS),
    ),
    Fault(
        "NVCC_CCBIN leads nowhere",
        variable("NVCC_CCBIN", "/opt/gcc-99/bin/g++"),
        Expected("host-compiler-path-broken", "unset NVCC_CCBIN", layers=DRIVER_WORKS),
    ),
    Fault(
        "CUDAHOSTCXX leads nowhere",
        variable("CUDAHOSTCXX", "/opt/gcc-99/bin/g++"),
        Expected("host-compiler-path-broken", "unset CUDAHOSTCXX", layers=DRIVER_WORKS),
    ),
    Fault("no C++ compiler", no_compiler, Expected("host-compiler-missing", "g\\+\\+", layers=DRIVER_WORKS, exit_codes=(0,))),
    Fault("no toolkit on PATH", nothing_of_cuda_on_the_path, Expected("", layers=DRIVER_WORKS, exit_codes=(0,))),
    Fault(
        "CUDA_HOME leads nowhere",
        home_is("{here}/cuda-12.1"),
        Expected("cuda-home-wrong", "CUDA_HOME=|unset CUDA_HOME", layers=DRIVER_WORKS),
    ),
    Fault(
        "CUDA_HOME is a list",
        home_is(":{cuda}"),
        Expected("cuda-home-malformed", "export CUDA_HOME=", layers=DRIVER_WORKS),
    ),
    Fault(
        "CUDA_HOME ends in /bin",
        home_is("{cuda}/bin"),
        Expected("cuda-home-malformed", "export CUDA_HOME=", layers=DRIVER_WORKS),
    ),
    Fault(
        "CUDA_HOME of another major",
        older_toolkit_in_home,
        Expected("wrong-nvcc-on-path", r"CUDA_HOME=(?!\S*cuda-11)", layers=DRIVER_WORKS),
    ),
    Fault(
        "an arch list that torch cannot read",
        variable("TORCH_CUDA_ARCH_LIST", "sm_90"),
        Expected("arch-list-unknown", "TORCH_CUDA_ARCH_LIST", layers=DRIVER_WORKS),
    ),
    Fault(
        "an arch list without this GPU",
        variable("TORCH_CUDA_ARCH_LIST", "7.5"),
        Expected("arch-list-stale", "TORCH_CUDA_ARCH_LIST", layers=DRIVER_WORKS),
    ),
    Fault("no arch list", lambda machine, folder: Check({"TORCH_CUDA_ARCH_LIST": None}), Expected("", exit_codes=(0,))),
)
