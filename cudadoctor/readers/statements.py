"""Reads facts that people state in a line of their own: `# GPU: RTX 3080`, `Ubuntu 22.04, driver 535.54`, `CUDA 12.2`."""

from __future__ import annotations

import re

from cudadoctor.readers.reader import Reader, Values
from cudadoctor.readers.text import PlainText

_COUNT = r"(?:(?P<count>\d{1,2}) ?[x×] ?)?"
_SUFFIX = r"(?: ?(?:Ti|SUPER|Super|Laptop GPU|Max-Q|Mobile|D|Ada(?: Generation)?|Blackwell(?: \w{3,12}){0,3}))*"
_NVIDIA = re.compile(
    r"(?<![\w-])" + _COUNT + r"(?P<name>(?:NVIDIA )?(?:"
    r"(?:GeForce )?(?:RTX|GTX) ?\d{3,4}" + _SUFFIX + r"(?![\w.]\d)"
    r"|GeForce (?:MX|GT)? ?\d{3,4}M?|RTX A?\d{4}" + _SUFFIX + r"|RTX PRO \d{4}" + _SUFFIX + r"|Quadro (?:RTX |GV|GP|[KMPT])?\d{3,5}\w?|TITAN (?:RTX|Xp|X|V)|Tesla [A-Z]\d{1,3}\w?(?:-\w{3,12}(?:-\d{1,3}GB)?)?"
    r"|Jetson (?:AGX |Orin |Xavier )?(?:Orin|Xavier|Nano|Thor|TX[12])(?: (?:NX|Nano|AGX|Super))?|(?<=NVIDIA )Thor"
    r"|(?:GH200|GB200|GB300|GB10|H100|H200|H800|H20|B100|B200|B300|A100|A800|A30|A40|A16|A10G?|A2|L40S?|L20|L4|V100S?|P100|P40|P4|T4|K80|M60|M40)"
    r"(?:[ -](?:SXM\d?|PCIe|PCIE|NVL|HBM\d\w?|\d{2,3} ?GB)){0,4}))(?![\w-])"
)  # fmt: skip
_AMD = re.compile(
    r"\b(?:AMD )?(?:Radeon(?: (?:RX|Pro|VII|Graphics))?(?: ?\w{1,8}){0,2}|Instinct MI\d{2,3}\w?|RX ?[5-9]\d{3}(?: ?XTX?)?|gfx\d{3,4}\w?)\b"
)
_DRIVER = re.compile(
    r"(?i:\b(?:nvidia[ -])?driver(?:s)?(?: version| release)?[ :=]{1,3}(?:v|is |version )?)(?P<driver>\d{3}(?:\.\d{1,4}){0,2})(?![\w.]?\d)"
)
_DRIVER_NAMED = re.compile(
    r"(?i:\bnvidia (?:\w{1,8} )?driver |\bnvidia-driver-|NVIDIA-Linux-\w{3,10}-)(?P<driver>\d{3}(?:\.\d{1,4}){0,2})(?![\w.]?\d)"
)
_CUDA = re.compile(
    r"(?i:\bcuda)(?P<what>(?i:[ _-]{0,2}(?:toolkit|compilation tools|runtime|\(pytorch\)|version|api|driver))?(?i: version)?)(?: is| used)?[ :=_-]{1,4}[vV]?(?P<cuda>\d{1,2}\.\d{1,2}(?:\.\d{1,3})?)(?![\w]|\.\d)"
)
_DRIVER_BEFORE = re.compile(r"(?i:driver)[^\n]{0,40}\Z")
_NOT_TOOLKIT = re.compile(r"(?i:driver|supports?|capability|up to|image|nvidia/|\bruntime)[^\n]{0,24}\Z")
_TORCH = re.compile(
    r"(?i:\b(?:py)?torch(?: version)?)(?: ?[:=]{1,2} ?| v?)['\"]?(?P<version>\d{1,2}\.\d{1,2}(?:\.\d{1,3})?[\w.+]{0,40})"
)
_FRAMEWORK = re.compile(
    r"(?i:\b(?P<name>tensorflow(?:-gpu)?|jax|jaxlib|cupy[\w-]{0,12}|onnxruntime-gpu|onnxruntime|flash[-_]attn|xformers|triton|vllm|bitsandbytes|paddlepaddle-gpu|ctranslate2|torchvision|torchaudio|deepspeed|numba|cudf|transformers))(?: version)?(?: ?[:=]{1,2} ?| v?)(?P<version>\d{1,4}\.\d{1,3}[\w.+]{0,30})"
)
_CUDNN = re.compile(r"(?i:\bcudnn)(?i:[ _-]?version)?[ :=]{1,3}v?(?P<version>\d{1,2}(?:\.\d{1,2}){0,3})(?![\w-])")
_OS = re.compile(
    r"\b(?P<os>Ubuntu(?: (?:Server|Desktop))? \d{2}\.\d{2}(?:\.\d)?(?: LTS)?|Debian(?: GNU/Linux)? \d{1,2}|Fedora(?: Linux)?(?: \d{2})?|CentOS(?: Linux)?(?: (?:release )?\d(?:\.\d{1,4}){0,2})?|Rocky Linux \d(?:\.\d{1,2})?"
    r"|(?:RHEL|Red Hat Enterprise Linux) ?\d(?:\.\d{1,2})?|Arch Linux|openSUSE \w{3,12}|Linux Mint \d{2}|Pop!_OS \d{2}\.\d{2}|Amazon Linux \d{1,4}|Windows (?:10|11|Server \d{4})|macOS(?: \w{4,10})? ?\d{0,2}(?:\.\d{1,2}){0,2}|Mac OS X)\b"
)
_PYTHON = re.compile(r"(?i:\bpython(?: version)?)[ :=]{1,3}(?P<version>[23]\.\d{1,2}(?:\.\d{1,2})?)(?![\w])")
_GCC = re.compile(
    r"(?i:\b(?:gcc|g\+\+|gnu)(?: version)?)[ :=]{1,3}(?:\([^)\n]{1,60}\) )?(?P<version>\d{1,2}(?:\.\d{1,2}){0,2})(?![\w])"
)
_CONDA_GCC = re.compile(r"(?i:g(?:cc|\+\+)) \([^)\n]{1,80}\) (?P<version>\d{1,2}(?:\.\d{1,2}){1,2})")
_GNU_ID = re.compile(r"(?:CXX|C|CUDA host) compiler (?:identification )?is GNU (?P<version>\d{1,2}(?:\.\d{1,2}){1,2})")
_MSVC = re.compile(
    r"(?:MSVC |MSC v\.|Visual C\+\+ |Compiler Version |compiler identification is MSVC )(?P<version>\d{2,4}(?:\.\d{1,6}){0,3})|MSVC[\\/](?P<toolset>14\.\d{1,2}(?:\.\d{1,6})?)"
)
_GLIBC = re.compile(
    r"(?i:\bglibc|GNU C Library|ldd \([^)\n]{1,60}\))[ :=-]{0,3}(?:\([^)\n]{1,60}\) )?(?P<version>2\.\d{1,2})(?![\w])"
)
_CMAKE = re.compile(r"(?i:\bcmake(?: version)?)[ :=-]{1,2}(?P<version>\d\.\d{1,2}(?:\.\d{1,3})?)(?![\w])")
_ARCHITECTURE = re.compile(r"\b(?:aarch64|arm64|x86_64|amd64)\b")
_L4T = re.compile(
    r"\b(?:L4T R?(?P<l4t>\d{2}\.\d{1,2}(?:\.\d{1,2})?)|JetPack (?P<jetpack>\d(?:\.\d{1,2}){0,2})|R(?P<release>\d{2}) \(release\), REVISION: (?P<revision>[\d.]{1,6}))"
)
_CAPABILITY = re.compile(r"(?i:compute capability|\bCC)[ :=]{1,3}(?P<cc>\d{1,2}\.\d)(?![\d.])")
_PADDLE = re.compile(
    r"GPU Compute Capability: (?P<cc>\d{1,2}\.\d), Driver API Version: (?P<driver>\d{1,2}\.\d{1,2}), Runtime API Version: (?P<runtime>\d{1,2}\.\d{1,2})"
)
_CMAKE_NVCC = re.compile(r"CUDA compiler identification is NVIDIA (?P<version>\d{1,2}\.\d{1,2}(?:\.\d{1,4})?)")
_CMAKE_FOUND = re.compile(
    r"Found CUDA(?:Toolkit)?: (?P<root>[^\s(;]{1,200})[^\n]{0,60}?\(found (?:suitable )?(?:exact )?version \"(?P<version>\d{1,2}\.\d{1,2}(?:\.\d{1,4})?)\""
)
_NVCC_PATH = re.compile(
    r"(?<![\w.~-])(?P<path>(?:/|~/|\$CONDA_PREFIX/|[A-Za-z]:\\)?(?:[\w.+~-]{1,60}[/\\]){1,12}bin[/\\]{1,2}nvcc)(?![\w-])"
)
_CUBIN = re.compile(r"\b(?:ELF file|PTX file)\s{1,8}\d{1,5}: \S{0,200}?(?P<arch>(?:sm|compute)_\d{2,3}[af]?)\.(?:cubin|ptx)")
_TARGET = re.compile(
    r"(?:-gencode[= ]arch=|-arch[= ]|--gpu-architecture[= ]|code=|--generate-code[= ]arch=)(?P<arch>(?:sm|compute)_\d{2,3}[af]?)"
)


def read_statements(text: PlainText) -> Values | None:
    """Whatever is said in passing, one key a subject; `cuda` keeps apart what was said of the driver and of the toolkit."""
    body = text.body
    values: Values = {}
    _gpus(values, body)
    _cuda(values, body)
    _first(values, body)
    _all(values, body)
    return {name: value for name, value in values.items() if value} or None


def _gpus(values: Values, body: str) -> None:
    found: dict[str, int] = {}
    for match in _NVIDIA.finditer(body):
        name = match["name"].strip()
        if not _is_image(body, match.start()):
            found[name] = max(found.get(name, 0), int(match["count"] or 1))
    values["gpus"] = [{"name": name, "count": count} for name, count in found.items()]
    values["amd_gpus"] = list(dict.fromkeys(match[0].strip() for match in _AMD.finditer(body)))


def _is_image(body: str, position: int) -> bool:
    """True inside a path, an address or an image name, where a product's name says nothing about this machine."""
    return body[max(0, position - 1) : position] in ("/", "=", "-", "_", ":", "\\")


def _cuda(values: Values, body: str) -> None:
    values["driver_release"] = next((m["driver"] for pattern in (_DRIVER, _DRIVER_NAMED) for m in pattern.finditer(body)), None)
    driver: list[str] = []
    toolkit: list[str] = []
    for match in _CUDA.finditer(body):
        before = body[max(0, match.start() - 40) : match.start()]
        if "pytorch" in match["what"].lower():
            values["torch_cuda"] = match["cuda"]
        elif _DRIVER_BEFORE.search(before) or "driver" in match["what"].lower():
            driver.append(match["cuda"])
        elif not _NOT_TOOLKIT.search(before) and "capab" not in body[match.end() : match.end() + 12]:
            toolkit.append(match["cuda"])
    values["driver_cuda"] = driver[0] if driver else None
    values["cuda"] = list(dict.fromkeys(toolkit))


def _first(values: Values, body: str) -> None:
    subjects = (
        ("torch_version", (_TORCH,)), ("cudnn", (_CUDNN,)), ("python", (_PYTHON,)), ("gcc", (_CONDA_GCC, _GNU_ID, _GCC)),
        ("glibc", (_GLIBC,)), ("cmake", (_CMAKE,)), ("nvcc_by_cmake", (_CMAKE_NVCC,)), ("compute_capability", (_CAPABILITY,)),
    )  # fmt: skip
    for name, patterns in subjects:
        match = next((found for pattern in patterns if (found := pattern.search(body))), None)
        values[name] = match[match.lastgroup or 0] if match else None
    if msvc := _MSVC.search(body):
        values["msvc"] = msvc["version"] or msvc["toolset"]
    if system := _OS.search(body):
        values["os"] = system["os"]
    if architecture := _ARCHITECTURE.search(body):
        values["architecture"] = {"arm64": "aarch64", "amd64": "x86_64"}.get(architecture[0], architecture[0])
    if l4t := _L4T.search(body):
        values["l4t"] = l4t[0]
    if paddle := _PADDLE.search(body):
        values |= {"compute_capability": paddle["cc"], "driver_cuda": paddle["driver"], "runtime_cuda": paddle["runtime"]}
    if found := _CMAKE_FOUND.search(body):
        values["toolkit_by_cmake"] = {"root": found["root"], "version": found["version"]}


def _all(values: Values, body: str) -> None:
    values["packages"] = {match["name"].lower().replace("_", "-"): match["version"] for match in _FRAMEWORK.finditer(body)}
    values["nvcc_paths"] = list(dict.fromkeys(match["path"] for match in _NVCC_PATH.finditer(body)))
    values["binary_archs"] = list(dict.fromkeys(match["arch"] for match in _CUBIN.finditer(body)))
    values["targets"] = list(dict.fromkeys(match["arch"] for match in _TARGET.finditer(body)))


STATEMENTS = Reader("statements", ("",), read_statements)
