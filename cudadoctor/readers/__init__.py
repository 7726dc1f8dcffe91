"""Readers of what CUDA-related tools print. Pure: text in, values out; nothing is opened, run or sent.

The registry is the explicit tuple READERS, in the order in which the snapshot prefers their facts.
"""

from __future__ import annotations

from cudadoctor.readers.collect_env import COLLECT_ENV, VLLM_COLLECT_ENV
from cudadoctor.readers.containers import CONTAINER_CLI_INFO, CONTAINER_ERRORS, CONTAINER_USE
from cudadoctor.readers.device_query import BANDWIDTH_TEST, DEVICE_QUERY
from cudadoctor.readers.environment import ENV_VARS
from cudadoctor.readers.framework_envs import ACCELERATE, DS_REPORT, SGLANG, TRANSFORMERS, XFORMERS
from cudadoctor.readers.installs import INSTALL_LOG, UV_FAILURE
from cudadoctor.readers.kernel import DMESG_NVRM, KERNEL_STATE, LSMOD_MODINFO, PROC_DRIVER_VERSION
from cudadoctor.readers.library_reports import BITSANDBYTES, CUPY, JAX, NUMBA, TENSORFLOW
from cudadoctor.readers.loader import LDCONFIG, LDD, LISTING
from cudadoctor.readers.nvcc import NVCC, NVCC_PATHS
from cudadoctor.readers.nvidia_smi import NVIDIA_SMI
from cudadoctor.readers.nvidia_smi_lists import NVIDIA_SMI_CSV, NVIDIA_SMI_L, NVIDIA_SMI_VERSION
from cudadoctor.readers.nvidia_smi_q import NVIDIA_SMI_Q, NVIDIA_SMI_XML
from cudadoctor.readers.nvidia_smi_topo import NVIDIA_SMI_TOPO
from cudadoctor.readers.packages import PACKAGES, PIP_CONDA_LIST
from cudadoctor.readers.prompts import COMMANDS
from cudadoctor.readers.python_answers import PYTHON_ANSWERS
from cudadoctor.readers.reader import Reader
from cudadoctor.readers.statements import STATEMENTS
from cudadoctor.readers.wsl import WSL

READERS: tuple[Reader, ...] = (
    NVIDIA_SMI,
    NVIDIA_SMI_Q,
    NVIDIA_SMI_XML,
    NVIDIA_SMI_CSV,
    NVIDIA_SMI_L,
    NVIDIA_SMI_VERSION,
    NVIDIA_SMI_TOPO,
    PROC_DRIVER_VERSION,
    CONTAINER_CLI_INFO,
    DEVICE_QUERY,
    BANDWIDTH_TEST,
    COLLECT_ENV,
    VLLM_COLLECT_ENV,
    SGLANG,
    TRANSFORMERS,
    ACCELERATE,
    DS_REPORT,
    XFORMERS,
    BITSANDBYTES,
    NUMBA,
    CUPY,
    JAX,
    TENSORFLOW,
    NVCC,
    NVCC_PATHS,
    LDCONFIG,
    LDD,
    LISTING,
    ENV_VARS,
    DMESG_NVRM,
    LSMOD_MODINFO,
    KERNEL_STATE,
    PACKAGES,
    PIP_CONDA_LIST,
    UV_FAILURE,
    INSTALL_LOG,
    CONTAINER_ERRORS,
    CONTAINER_USE,
    WSL,
    PYTHON_ANSWERS,
    STATEMENTS,
    COMMANDS,
)
