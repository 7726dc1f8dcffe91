"""Which reading gives which facts, in the order of CONTRIBUTIONS: the surest source of a fact comes first."""

from __future__ import annotations

from collections.abc import Callable

from cudadoctor.readers.book import FactBook
from cudadoctor.readers.driver_facts import (
    from_cli_info,
    from_device_query,
    from_kernel_state,
    from_modules,
    from_nvidia_smi,
    from_nvidia_smi_csv,
    from_nvidia_smi_l,
    from_nvidia_smi_q,
    from_nvrm,
    from_proc,
    from_system_packages,
    from_versions,
    from_wsl,
)
from cudadoctor.readers.reader import Values
from cudadoctor.readers.software_facts import (
    from_answers,
    from_bitsandbytes,
    from_collect_env,
    from_cupy,
    from_framework_env,
    from_install_log,
    from_jax,
    from_listing,
    from_loader,
    from_numba,
    from_nvcc,
    from_nvcc_paths,
    from_python_packages,
    from_variables,
    from_xformers,
)

CONTRIBUTIONS: tuple[tuple[str, Callable[[Values, FactBook], None]], ...] = (
    ("wsl", from_wsl),
    ("nvidia_smi", from_nvidia_smi),
    ("nvidia_smi_q", from_nvidia_smi_q),
    ("nvidia_smi_xml", from_nvidia_smi_q),
    ("nvidia_smi_csv", from_nvidia_smi_csv),
    ("nvidia_smi_L", from_nvidia_smi_l),
    ("nvidia_smi_version", from_versions),
    ("proc_driver_version", from_proc),
    ("container_cli_info", from_cli_info),
    ("python_answers", from_answers),
    ("device_query", from_device_query),
    ("bandwidth_test", from_versions),
    ("collect_env", from_collect_env),
    ("sglang_check_env", from_framework_env),
    ("transformers_env", from_framework_env),
    ("accelerate_env", from_framework_env),
    ("ds_report", from_framework_env),
    ("xformers_info", from_xformers),
    ("bitsandbytes", from_bitsandbytes),
    ("numba_s", from_numba),
    ("cupy_show_config", from_cupy),
    ("jax_env", from_jax),
    ("nvcc_paths", from_nvcc_paths),
    ("nvcc", from_nvcc),
    ("ldd", from_loader),
    ("ldconfig", from_loader),
    ("file_listing", from_listing),
    ("env_vars", from_variables),
    ("dmesg_nvrm", from_nvrm),
    ("lsmod_modinfo", from_modules),
    ("kernel_state", from_kernel_state),
    ("packages", from_system_packages),
    ("pip_conda_list", from_python_packages),
    ("install_log", from_install_log),
)
