"""Environment variables that influence CUDA, and no others: secrets never enter a snapshot."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cudadoctor.model.fact import Fact, Known

if TYPE_CHECKING:
    from cudadoctor.system import System

PREFIXES = (
    "CUDA",
    "CUDNN_",
    "CUBLAS",
    "CUTENSOR",
    "CUPY_",
    "NVIDIA_",
    "NVCC",
    "NV_",
    "NVSHMEM_",
    "NCCL_",
    "NVRTC_",
    "TORCH",
    "PYTORCH_",
    "TRITON_",
    "XLA_",
    "JAX_",
    "TF_CPP_",
    "TF_CUDA",
    "TF_CUDNN",
    "TF_ENABLE_",
    "TF_FORCE_",
    "TF_GPU",
    "TF_XLA",
    "TENSORFLOW_",
    "VLLM_",
    "FLASH_ATTENTION_",
    "HIP_",
    "ROCR_",
    "ROCM_",
    "HSA_",
    "CMAKE_CUDA",
    "NUMBA_CUDA",
    "NUMBA_ENABLE_CUDA",
    "BNB_CUDA",
    "OMPI_MCA_opal_cuda",
    "UCX_",
    "__NV_",
    "__GL",
)
NAMES = frozenset(
    {
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "LIBRARY_PATH",
        "CPATH",
        "CPLUS_INCLUDE_PATH",
        "C_INCLUDE_PATH",
        "CC",
        "CXX",
        "CUDAHOSTCXX",
        "CUDAARCHS",
        "MAX_JOBS",
        "FORCE_CUDA",
        "USE_CUDA",
        "VIRTUAL_ENV",
        "CONDA_PREFIX",
        "CONDA_DEFAULT_ENV",
        "CONDA_OVERRIDE_CUDA",
        "PYTHONPATH",
        "PYTHONNOUSERSITE",
        "PYTHONHOME",
        "UV_TORCH_BACKEND",
        "TCNN_CUDA_ARCHITECTURES",
        "GPU_DEVICE_ORDINAL",
        "SLURM_JOB_ID",
        "SLURM_JOB_GPUS",
        "SLURM_STEP_GPUS",
        "SLURM_GPUS_ON_NODE",
        "WSL_DISTRO_NAME",
        "OMP_NUM_THREADS",
    }
)
SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|PRIVATE|(?:^|_)KEY(?:$|_)|AUTH", re.IGNORECASE)
MAX_VALUE = 4096


def read_environment(system: System, table_names: frozenset[str] = frozenset()) -> Fact[dict[str, str]]:
    """The CUDA-related variables with their values; `table_names` are the names of matrices/env_vars.toml."""
    return Known(select_variables(dict(system.environ), table_names), "environment")


def select_variables(environ: dict[str, str], table_names: frozenset[str] = frozenset()) -> dict[str, str]:
    """Those variables that influence CUDA, sorted by name; names that look like secrets are left out whatever their prefix."""
    chosen = NAMES | table_names
    return {
        name: value[:MAX_VALUE]
        for name, value in sorted(environ.items())
        if (name in chosen or name.startswith(PREFIXES)) and not SECRET.search(name)
    }
