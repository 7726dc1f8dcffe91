from __future__ import annotations

from pathlib import Path

from cudadoctor.model.fact import known
from cudadoctor.probes.environment import read_environment, select_variables
from tests.fakes.roots import linux


def test_only_what_influences_cuda_is_taken(tmp_path: Path) -> None:
    environ = {
        "CUDA_VISIBLE_DEVICES": "",
        "LD_LIBRARY_PATH": "/x",
        "NCCL_DEBUG": "INFO",
        "TORCH_CUDA_ARCH_LIST": "8.9",
        "HOME": "/home/somebody",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "TF_CLI_CONFIG_FILE": "terraform's",
    }
    taken = known(read_environment(linux(tmp_path, environ=environ)))
    assert taken == {"CUDA_VISIBLE_DEVICES": "", "LD_LIBRARY_PATH": "/x", "NCCL_DEBUG": "INFO", "TORCH_CUDA_ARCH_LIST": "8.9"}


def test_secrets_are_left_out_whatever_their_prefix_or_the_table_says() -> None:
    environ = {"NVIDIA_API_KEY": "k", "VLLM_API_KEY": "k", "TORCH_AUTH": "k", "NV_TOKEN": "k", "CUDA_PASSWORD": "k"}
    assert select_variables(environ, frozenset(environ)) == {}


def test_names_of_the_table_are_taken() -> None:
    assert select_variables({"SOME_NEW_NAME": "1", "OTHER": "2"}, frozenset({"SOME_NEW_NAME"})) == {"SOME_NEW_NAME": "1"}


def test_huge_values_are_cut() -> None:
    assert len(select_variables({"CUDA_HOME": "x" * 1_000_000})["CUDA_HOME"]) == 4096
