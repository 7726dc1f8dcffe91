"""A pasted text becomes a partial snapshot: facts with source and line, disagreement kept, our own report read back exactly."""

from __future__ import annotations

import json
import tracemalloc

import pytest

from cudadoctor.model.codec import to_json
from cudadoctor.model.fact import NOT_ASKED, Known, known, maybe
from cudadoctor.model.report import Report, Tool, Verdict
from cudadoctor.model.snapshot import Host, Platform, Snapshot, TorchBuild
from cudadoctor.readers.paste import MAX_PASTE_BYTES, PasteError, read_paste
from cudadoctor.report.packed import pack

SMI = """$ nvidia-smi
| NVIDIA-SMI 550.144.03             Driver Version: 550.144.03     CUDA Version: 12.4     |
|   0  NVIDIA GeForce RTX 4090        Off |   00000000:01:00.0 Off |                  Off |
|  0%   38C    P8             15W /  450W |      15MiB /  24564MiB |      0%      Default |
|                                         |                        |                  N/A |
"""


def snapshot(text: str) -> Snapshot:
    return read_paste(text).snapshot


def test_facts_carry_source_and_line() -> None:
    release = snapshot(SMI).driver.driver_release
    assert isinstance(release, Known)
    assert (str(release.value), release.source, release.line) == ("550.144.03", "nvidia_smi", 2)


def test_sources_that_disagree_are_kept() -> None:
    text = SMI + "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\n"
    release = snapshot(text).driver.driver_release
    assert isinstance(release, Known)
    assert str(release.value) == "550.144.03"
    assert [(other.source, other.value) for other in release.others] == [("proc_driver_version", "535.183.01")]


def test_mixed_paste_fills_all_parts() -> None:
    text = (
        "Ubuntu 22.04.4 LTS, gcc (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0\n"
        + SMI
        + "$ nvcc --version\nCuda compilation tools, release 12.6, V12.6.85\n"
        + "$ echo $LD_LIBRARY_PATH\n/usr/local/cuda/lib64\n"
        + '$ python -c "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.is_available())"\n'
        + "2.5.1+cu124 12.4 True\n"
        + ">>> torch.cuda.get_arch_list()\n['sm_50', 'sm_60', 'sm_70', 'sm_75', 'sm_80', 'sm_86', 'sm_90']\n"
    )
    found = snapshot(text)
    torch = known(found.python.torch)
    assert known(found.host.platform) is Platform.LINUX
    assert maybe(known(found.gpus)[0].memory_total_bytes) == 24564 * 2**20
    assert [known(kit.toolkit_version).release for kit in known(found.toolkits)] == ["12.6"]
    assert known(found.environment) == {"LD_LIBRARY_PATH": "/usr/local/cuda/lib64"}
    assert (known(torch.torch_version), known(torch.torch_cuda_version).release, known(torch.is_available)) == (
        "2.5.1+cu124",
        "12.4",
        True,
    )
    assert str(known(torch.arch_list)[-1]) == "sm_90"
    assert str(known(known(found.host_compilers)[0].compiler_version)) == "11.4.0"


def test_gpu_without_a_readable_number_is_none() -> None:
    found = snapshot(
        "NVRM version:   575.57.08\nDevice Index:   first\nModel:          NVIDIA Tesla T4\nDevice Index:   1\nModel: Tesla T4\n"
    )
    assert [gpu.index for gpu in known(found.gpus)] == [1]


def test_nothing_is_invented_from_an_empty_text() -> None:
    found = snapshot("hello\n")
    assert found.gpus is NOT_ASKED
    assert found.python.torch is NOT_ASKED
    assert found.errors == ()


def test_shortened_name_gives_way_to_the_full_one() -> None:
    table = SMI.replace("NVIDIA GeForce RTX 4090        ", "NVIDIA GeForce ...             ")
    found = snapshot(table + "$ nvidia-smi -L\nGPU 0: NVIDIA GeForce RTX 4090 (UUID: GPU-00000000-0000-4000-8000-000000000001)\n")
    assert maybe(known(found.gpus)[0].name) == "NVIDIA GeForce RTX 4090"


@pytest.mark.parametrize(
    ("text", "build"),
    [
        (">>> torch.__version__, torch.version.cuda\n('2.9.1', None)\n", TorchBuild.CPU),
        ("$ conda list\npytorch   1.9.0   py3.8_cpu_0   pytorch\n", TorchBuild.CPU),
        ("$ conda list\npytorch   1.10.1   py3.6_cuda10.2_cudnn7.6.5_0   pytorch\n", TorchBuild.CUDA),
        ("PyTorch version: 2.9.1+rocm6.4\nCUDA used to build PyTorch: N/A\nROCM used to build PyTorch: 6.4.0\n", TorchBuild.ROCM),
        ("AssertionError: Torch not compiled with CUDA enabled\n", TorchBuild.CPU),
    ],
)
def test_build_of_torch(text: str, build: TorchBuild) -> None:
    assert known(known(snapshot(text).python.torch).build) is build


def test_cuda_home_names_the_toolkit_that_builds_take() -> None:
    text = "$ export CUDA_HOME=/usr/local/cuda-11.0\n$ nvcc --version\nCuda compilation tools, release 12.6, V12.6.85\n"
    chosen = [kit.root for kit in known(snapshot(text).toolkits) if kit.chosen_for_builds]
    assert chosen == ["/usr/local/cuda-11.0"]


def test_wsl_wins_over_linux() -> None:
    text = SMI + "Linux host 5.15.153.1-microsoft-standard-WSL2 #1 SMP x86_64 GNU/Linux\n"
    assert known(snapshot(text).host.platform) is Platform.WSL


def test_commands_are_readings_with_lines() -> None:
    found = {
        reading.kind: reading.values for reading in snapshot("(venv) PS C:\\x> pip install torch\n>>> import torch\n").readings
    }
    assert [(c["shell"], c["text"], c["line"]) for c in found["commands"]["commands"]] == [
        ("powershell", "pip install torch", 1),
        ("python", "import torch", 2),
    ]


def test_secrets_reach_no_part_of_the_snapshot() -> None:
    text = (
        "HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz\n$ export CUDA_API_TOKEN=verysecret123\n"
        "error: https://me:pa55word@host/x CUDA out of memory\n"
    )
    written = to_json(snapshot(text)).decode()
    assert not any(secret in written for secret in ("hf_abcdef", "verysecret123", "pa55word"))


def report() -> Report:
    host = Host(platform=Known(Platform.LINUX, "os.uname"))
    return Report(
        tool=Tool(version="1.0"),
        created="2026-11-30T00:00:00Z",
        node="n7",
        verdict=Verdict.HEALTHY,
        summary="fine",
        snapshot=Snapshot(host=host),
    )


def test_own_json_report_is_read_back() -> None:
    paste = read_paste(to_json(report()))
    assert (paste.snapshot, paste.proofs, paste.node) == (report().snapshot, (), "n7")


@pytest.mark.parametrize("columns", [60, 80])
def test_own_markdown_report_is_read_back_however_wrapped(columns: int) -> None:
    block = "Some words\n" + pack(report())
    wrapped = "\n".join(line[i : i + columns] for line in block.split("\n") for i in range(0, len(line), columns))
    assert read_paste(wrapped).snapshot == report().snapshot


def test_damaged_report_is_refused() -> None:
    text = json.dumps({"schema": "cudadoctor.report/1", "verdict": "nothing"})
    with pytest.raises(PasteError, match="damaged"):
        read_paste(text)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "utf-8"])
def test_encodings_of_windows_are_read(encoding: str) -> None:
    assert str(known(read_paste(SMI.encode(encoding)).snapshot.driver.driver_release)) == "550.144.03"


@pytest.mark.parametrize("data", [bytes(range(7)) * 4000, b"\xff\xfa" * 5000], ids=["control bytes", "no UTF-8"])
def test_binary_is_refused(data: bytes) -> None:
    with pytest.raises(PasteError, match="binary"):
        read_paste(data)


def test_size_is_limited() -> None:
    with pytest.raises(PasteError, match="larger than 4 MiB"):
        read_paste("x" * (MAX_PASTE_BYTES + 1))


def test_variables_that_rules_look_at_are_kept() -> None:
    names = ("CUDA_VISIBLE_DEVICES", "TORCH_CUDA_ARCH_LIST", "NVIDIA_DRIVER_CAPABILITIES", "LD_LIBRARY_PATH")
    found = known(snapshot("".join(f"{name}=1\n" for name in names)).environment)
    assert set(found) == set(names)


def test_memory_stays_small_on_a_large_text() -> None:
    tracemalloc.start()
    read_paste("CUDA error: out of memory at line 1234567890\n" * 20000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 * 2**20


INTEL = "00:02.0 VGA compatible controller: Intel Corporation UHD Graphics 620 (rev 07)\n"


@pytest.mark.parametrize(
    ("text", "vendors"),
    [
        ('$ lspci | grep -iE "vga|3d"\n' + INTEL, ("8086",)),
        ("$ lspci | grep -i vga\n" + INTEL, None),
        ("$ lspci | grep -i vga\n" + INTEL + "01:00.0 VGA compatible controller: NVIDIA Corporation GA104\n", ("8086", "10de")),
        ("$ lspci | grep -i nvidia\n$ uname -r\n", ()),
        ("$ lspci | grep -ci nvidia\n0\n", ()),
        ("$ lspci | grep -i nvidia\n", None),
    ],
)
def test_only_a_full_listing_tells_which_gpus_are_there(text: str, vendors: tuple[str, ...] | None) -> None:
    devices = maybe(snapshot(text).driver.pci_devices)
    assert (None if devices is None else tuple(device.vendor_id for device in devices)) == vendors


def test_device_nodes_of_a_short_listing() -> None:
    nodes = maybe(snapshot("$ ls /dev/nvidia*\n/dev/nvidia0  /dev/nvidiactl\n").driver.device_nodes) or ()
    assert [node.path for node in nodes] == ["/dev/nvidia0", "/dev/nvidiactl"]


def test_a_listed_folder_is_a_toolkit_beside_one_that_was_asked() -> None:
    text = "$ which nvcc\n/usr/bin/nvcc\n$ ls -d /usr/local/cuda*\n/usr/local/cuda  /usr/local/cuda-12.2\n"
    kits = known(snapshot(text).toolkits)
    assert [(kit.root, kit.chosen_for_builds) for kit in kits] == [("/usr", True), ("/usr/local/cuda-12.2", False)]


def test_a_listed_folder_alone_is_no_toolkit() -> None:
    assert snapshot("$ ls -d /usr/local/cuda-*\n/usr/local/cuda-11.8  /usr/local/cuda-12.2\n").toolkits == NOT_ASKED


def test_a_package_named_in_the_command_only() -> None:
    text = "$ pip show torch | grep Version\nVersion: 2.4.1+cu124\n"
    assert [(each.name, each.package_version) for each in known(snapshot(text).python.packages)] == [("torch", "2.4.1+cu124")]


def test_a_toolkit_at_the_end_of_path_is_listed() -> None:
    text = "export PATH=${PATH}:/usr/local/cuda-13.0/bin\n$ which nvcc\n/usr/bin/nvcc\n"
    assert [kit.root for kit in known(snapshot(text).toolkits)] == ["/usr", "/usr/local/cuda-13.0"]


CUDNN = "Could not load library libcudnn_cnn_infer.so.8. Error: "


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        (CUDNN + "/usr/lib/libnvrtc.so: undefined symbol: nvrtcGetCUBIN", {"ld-library-path-shadow"}),
        (CUDNN + "libcudnn_cnn_infer.so.8: cannot open shared object file", {"libcudnn-missing"}),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_No CUDA devices found.'", {"arch-list-empty-no-gpu"}),
        ("ggml_cuda_init: failed to initialize CUDA: unknown error", {"cuda-error-999", "framework-no-platform"}),
    ],
)  # fmt: skip
def test_texts_that_look_alike(text: str, kinds: set[str]) -> None:
    assert {error.kind for error in snapshot(text).errors} == kinds
