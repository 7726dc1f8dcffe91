"""Stand-ins for nvidia-smi and nvcc that answer the questions of the probes and compile to empty cubins."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.fakes.fakebin import python_program

_SMI = """
gpus, driver, cuda = json.loads({gpus!r}), {driver!r}, {cuda!r}
query = next((argument for argument in sys.argv[1:] if argument.startswith("--query-gpu=")), "")
if query:
    for field in query.partition("=")[2].split(","):
        if field in {unknown!r}:
            print('Field "%s" is not a valid field to query.' % field)
            sys.exit(2)
    for gpu in gpus:
        print(", ".join(gpu.get(field, "[N/A]") for field in query.partition("=")[2].split(",")))
elif "-L" in sys.argv:
    for gpu in gpus:
        print("GPU %s: %s (UUID: %s)" % (gpu["index"], gpu["name"], gpu["uuid"]))
        for slot, profile in enumerate(gpu.get("mig", [])):
            print("  MIG %-11s Device  %d: (UUID: MIG-00000000-0000-0000-0000-00000000000%d)" % (profile, slot, slot))
else:
    print("+" + "-" * 89 + "+")
    print("| NVIDIA-SMI %-22s Driver Version: %-14s CUDA Version: %-8s |" % (driver, driver, cuda))
    print("+" + "-" * 89 + "+")
    for gpu in gpus:
        print("| %3s  %-30s |" % (gpu["index"], gpu["name"]))
"""

_NVCC = """
release, build, targets = {release!r}, {build!r}, json.loads({targets!r})
if "--version" in sys.argv:
    print("nvcc: NVIDIA (R) Cuda compiler driver")
    print("Copyright (c) 2005-2025 NVIDIA Corporation")
    print("Cuda compilation tools, release %s, V%s" % (release, build))
elif "--list-gpu-code" in sys.argv:
    print("\\n".join(targets))
else:
    target = next(a.partition("=")[2] for a in sys.argv if a.startswith("-arch="))
    if target not in targets:
        print("nvcc fatal   : Value '%s' is not defined for option 'gpu-architecture'" % target, file=sys.stderr)
        sys.exit(1)
    source = open(sys.argv[-1], "rb").read()
    number = int(target.rstrip("af").rpartition("_")[2])
    rows = len(source) // 64 + 1
    head = b"\\x7fELF\\x02\\x01\\x01\\x33\\x07" + bytes(7)
    head += b"".join(n.to_bytes(w, "little") for n, w in (
        (2, 2), (190, 2), (1, 4), (0, 8), (0, 8), (64, 8), (number, 4), (64, 2), (0, 2), (0, 2), (64, 2), (rows, 2), (0, 2)))
    with open(sys.argv[sys.argv.index("-o") + 1], "wb") as cubin:
        cubin.write(head + source.ljust(rows * 64, b"\\0"))
"""


def fake_nvidia_smi(
    path: Path, driver: str, cuda: str, gpus: Sequence[Mapping[str, object]], unknown_fields: Sequence[str] = ()
) -> Path:
    """An nvidia-smi for GPUs given by their --query-gpu fields (`index`, `name`, `uuid`, ...; `mig` lists profiles)."""
    return python_program(path, _SMI.format(gpus=json.dumps(list(gpus)), driver=driver, cuda=cuda, unknown=tuple(unknown_fields)))


def fake_toolkit(root: Path, release: str, build: str, targets: Sequence[str]) -> Path:
    """A toolkit with an nvcc of that release (`12.6`, `12.6.85`), headers and libraries by name only; gives its nvcc."""
    nvcc = python_program(root / "bin" / "nvcc", _NVCC.format(release=release, build=build, targets=json.dumps(list(targets))))
    places = ["bin/nvcc.profile", "bin/ptxas", "bin/cudafe++", "nvvm/bin/cicc", "lib64/libcudart.so", "lib64/libcublas.so"]
    headers = ["cuda_runtime.h", "crt/host_config.h", "cublas_v2.h", "cusparse.h", "cusolverDn.h"]
    for name in [*places, *(f"include/{header}" for header in headers)]:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    (root / "version.json").write_text(json.dumps({"cuda": {"name": "CUDA SDK", "version": f"{release}.0"}}))
    return nvcc
