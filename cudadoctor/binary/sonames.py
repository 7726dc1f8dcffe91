"""Tells libraries of the CUDA stack by their file names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass

_NVIDIA = re.compile(
    r"lib(cuda|cudart|cublas|cufft|curand|cusolver|cusparse|cudnn|cupti|cufile|cutensor|nccl|nvrtc|nvJitLink|nvshmem|nvToolsExt"
    r"|nvidia-|nvinfer|nvjpeg|npp|nvvm|nvperf|cuobj|mathdx|cask)"
)


def is_nvidia(name: str) -> bool:
    """True for the file name of a library of the CUDA stack."""
    return _NVIDIA.match(name) is not None
