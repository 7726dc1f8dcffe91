"""Reads facts that people state in a line of their own: `Ubuntu 22.04, driver 535.54`, `CUDA 12.2`, `torch: 2.3.0`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cudadoctor.readers.hardware import said_gpus
from cudadoctor.readers.reader import Reader, Values, lines_with
from cudadoctor.readers.text import PlainText

# All patterns see lower-case lines.
_DRIVER = re.compile(
    r"\b(?:nvidia[ -])?drivers?(?: version| release)?[ :=(]{1,3}(?:v|is |version:? |nvidia )?"
    r"(?P<driver>\d{3}(?:\.\d{1,4}){0,2})(?![\w.]?\d)"
    r"|\bnvidia (?:\w{1,8} )?driver (?P<named>\d{3}(?:\.\d{1,4}){0,2})(?![\w.]?\d)"
    r"|(?:nvidia-driver-|nvidia-linux-\w{3,10}-)(?P<package>\d{3}(?:\.\d{1,4}){0,2})(?![\w.]?\d)"
)
_CUDA = re.compile(
    r"\bcuda(?P<what>[ _-]{0,2}(?:toolkit|compilation tools|runtime|\(pytorch\)|version|api|driver)?(?: version)?)"
    r"(?: is| used| detected)?[ :=_-]{1,4}v?(?P<cuda>\d{1,2}\.\d{1,2}(?:\.\d{1,3})?)(?!\w|\.\d)"
)
_DRIVER_BEFORE = re.compile(r"driver[^\n]{0,40}\Z")
_NOT_TOOLKIT = re.compile(
    r"(?:driver|supports?|capability|up to|image|nvidia/|\bruntime|headers say|requires?|needs?|at least"
    r"|supported on)[^\n]{0,24}\Z"
)
_FRAMEWORKS = (
    "tensorflow-gpu", "tensorflow", "jaxlib", "jax", "cupy", "onnxruntime-gpu", "onnxruntime", "flash-attn", "flash_attn",
    "xformers", "triton", "vllm",
    "bitsandbytes", "paddlepaddle-gpu", "ctranslate2", "torchvision", "torchaudio", "deepspeed", "numba", "cudf", "transformers",
)  # fmt: skip
_FRAMEWORK = re.compile(
    r"\b(?P<name>cupy-cuda\d{2,3}x?|"
    + "|".join(_FRAMEWORKS)
    + r")(?: version)?(?: ?[:=]{1,2} ?| v?)(?P<version>\d{1,4}\.\d{1,3}[\w.+]{0,30})"
)
_OS = re.compile(
    r"\b(?P<os>ubuntu(?: (?:server|desktop))? \d{2}\.\d{2}(?:\.\d)?(?: lts)?|debian"
    r"(?: gnu/linux)? \d{1,2}|fedora(?: linux)?(?: \d{2})?"
    r"|centos(?: linux)?(?: (?:release )?\d(?:\.\d{1,4}){0,2})?|rocky linux \d(?:\.\d{1,2})?|(?:rhel"
    r"|red hat enterprise linux) ?\d(?:\.\d{1,2})?"
    r"|arch linux|opensuse \w{3,12}|linux mint \d{2}|pop!_os \d{2}\.\d{2}|amazon linux \d{1,4}|windows (?:10|11|server \d{4})"
    r"|macos(?: [a-z]{4,10})? ?\d{0,2}(?:\.\d{1,2}){0,2}|mac os x)\b"
)
_OS_WORDS = (
    "ubuntu",
    "debian",
    "fedora",
    "centos",
    "rocky",
    "rhel",
    "red hat",
    "arch linux",
    "opensuse",
    "mint",
    "pop!",
    "amazon",
    "windows",
    "mac",
)

# key, words of which the line has one, pattern; the first match gives the value.
_SUBJECTS: tuple[tuple[str, tuple[str, ...], re.Pattern[str]], ...] = (
    (
        "torch_version",
        ("torch",),
        re.compile(
            r"\b(?:py)?torch(?: version)?(?: ?[:=]{1,2} ?| v?)['\"]?(\d{1,2}\.\d{1,2}"
            r"(?:\.\d{1,3})?[\w.+]{0,40})"
        ),
    ),
    ("cudnn", ("cudnn",), re.compile(r"\bcudnn(?:[ _-]?version)?[ :=]{1,3}v?(\d{1,2}(?:\.\d{1,2}){0,3})(?![\w-])")),
    ("python", ("python",), re.compile(r"\bpython(?: version)?[ :=]{1,3}([23]\.\d{1,2}(?:\.\d{1,2})?)(?!\w)")),
    ("gcc", ("gcc", "g++"), re.compile(r"\bg(?:cc|\+\+) \([^)\n]{1,80}\) (\d{1,2}(?:\.\d{1,2}){1,2})")),
    ("gcc", ("gnu",), re.compile(r"compiler (?:identification )?is gnu (\d{1,2}(?:\.\d{1,2}){1,2})")),
    (
        "gcc",
        ("gcc", "g++"),
        re.compile(
            r"(?<![\w(])(?:gcc|g\+\+)(?: version)?[ :=]{1,3}(?:\([^)\n]{1,60}\) )?(\d{1,2}(?:\.\d{1,2}){0,2})"
            r"(?![\w)])"
        ),
    ),
    (
        "glibc",
        ("libc", "ldd ("),
        re.compile(
            r"(?:\bglibc|gnu c library|ldd \([^)\n]{1,60}\))[ :=-]{0,3}(?:\([^)\n]{1,60}\) )?(2\.\d{1,2})"
            r"(?!\w)"
        ),
    ),
    ("cmake", ("cmake",), re.compile(r"\bcmake(?: version)?[ :=-]{1,2}(\d\.\d{1,2}(?:\.\d{1,3})?)(?!\w)")),
    (
        "nvcc_by_cmake",
        ("compiler identification",),
        re.compile(r"cuda compiler identification is nvidia (\d{1,2}\.\d{1,2}(?:\.\d{1,4})?)"),
    ),
    ("compute_capability", ("capability", "cc "), re.compile(r"(?:compute capability|\bcc)[ :=]{1,3}(\d{1,2}\.\d)(?![\d.])")),
    (
        "msvc",
        ("msvc", "visual c++", "compiler version"),
        re.compile(
            r"(?:msvc v\.|visual c\+\+ |compiler version |(?:identification is )?msvc )(\d{2,4}"
            r"(?:\.\d{1,6}){0,3})"
        ),
    ),
    ("msvc", ("msvc",), re.compile(r"msvc[\\/](14\.\d{1,2}(?:\.\d{1,6})?)")),
    ("architecture", ("aarch64", "arm64", "x86_64", "amd64"), re.compile(r"\b(aarch64|arm64|x86_64|amd64)\b")),
    (
        "l4t",
        ("l4t", "jetpack", "(release)"),
        re.compile(
            r"\b(l4t r?\d{2}\.\d{1,2}(?:\.\d{1,2})?|jetpack \d(?:\.\d{1,2}){0,2}"
            r"|r\d{2} \(release\), revision: [\d.]{1,6})"
        ),
    ),
)
_PADDLE = re.compile(
    r"gpu compute capability: (?P<cc>\d{1,2}\.\d), driver api version: (?P<driver>\d{1,2}\.\d{1,2}), "
    r"runtime api version: (?P<runtime>\d{1,2}\.\d{1,2})"
)
# These keep their case: paths.
_CMAKE_FOUND = re.compile(
    r"Found CUDA(?:Toolkit)?: (?P<root>[^\s(;]{1,200})[^\n]{0,60}?\(found (?:suitable )?"
    r"(?:exact )?version \"(?P<version>\d{1,2}\.\d{1,2}(?:\.\d{1,4})?)\""
)
_NVCC_PATH = re.compile(
    r"(?<![\w.~$-])(?P<path>(?:/|~/|\$[A-Z_]{1,30}/|[A-Za-z]:\\)?(?:[\w.+~-]{1,60}[/\\]){1,12}bin[/\\]{1,2}nvcc)(?![\w-])"
)
_CUBIN = re.compile(r"\b(?:ELF file|PTX file)\s{1,8}\d{1,5}: [^\n]{0,200}?(?P<arch>(?:sm|compute)_\d{2,3}[af]?)\.(?:cubin|ptx)")
_TARGET = re.compile(r"(?:-arch[= ]|arch=|--gpu-architecture[= ]|code=)(?P<arch>(?:sm|compute)_\d{2,3}[af]?)")
_SAME_ARCHITECTURE = {"arm64": "aarch64", "amd64": "x86_64"}


def read_statements(text: PlainText) -> Values | None:
    """Whatever is said in passing, one key a subject; `cuda` keeps apart what was said of the driver and of the toolkit."""
    values = said_gpus(text) | _cuda(text)
    for name, words, pattern in _SUBJECTS:
        if name not in values and (match := next(_found(text, words, pattern), None)):
            values[name] = match[1]
    if system := next(_found(text, _OS_WORDS, _OS), None):
        values["os"] = text.flat[slice(*system.span("os"))]
    if "architecture" in values:
        values["architecture"] = _SAME_ARCHITECTURE.get(values["architecture"], values["architecture"])
    if paddle := next(_found(text, ("driver api version",), _PADDLE), None):
        values |= {"compute_capability": paddle["cc"], "driver_cuda": paddle["driver"], "runtime_cuda": paddle["runtime"]}
    values |= _builds(text)
    return {name: value for name, value in values.items() if value} or None


def _found(text: PlainText, words: tuple[str, ...], pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
    for start, end in lines_with(text, words):
        yield from pattern.finditer(text.lowered, start, end)


def _cuda(text: PlainText) -> Values:
    values: Values = {}
    driver: list[str] = []
    toolkit: list[str] = []
    if release := next(_found(text, ("driver", "nvidia-linux"), _DRIVER), None):
        values["driver_release"] = release["driver"] or release["named"] or release["package"]
    for match in _found(text, ("cuda",), _CUDA):
        before = text.lowered[max(0, match.start() - 40) : match.start()]
        if "pytorch" in match["what"]:
            values["torch_cuda"] = match["cuda"]
        elif _DRIVER_BEFORE.search(before) or "driver" in match["what"]:
            driver.append(match["cuda"])
        elif not _NOT_TOOLKIT.search(before):
            toolkit.append(match["cuda"])
    return values | {"driver_cuda": driver[0] if driver else None, "cuda": list(dict.fromkeys(toolkit))}


def _builds(text: PlainText) -> Values:
    """Packages, compilers called, targets asked for, code found in binaries."""
    flat = text.flat
    values: Values = {"packages": {m["name"].replace("_", "-"): m["version"] for m in _found(text, _FRAMEWORKS, _FRAMEWORK)}}
    for name, words, pattern, group in (
        ("nvcc_paths", ("bin/nvcc", "bin\\nvcc", "bin//nvcc"), _NVCC_PATH, "path"),
        ("binary_archs", ("elf file", "ptx file"), _CUBIN, "arch"),
        ("targets", ("sm_", "compute_"), _TARGET, "arch"),
    ):
        found = (m[group] for start, end in lines_with(text, words) for m in pattern.finditer(flat, start, end))
        values[name] = list(dict.fromkeys(found))
    for start, end in lines_with(text, ("found cuda",)):
        if found_toolkit := _CMAKE_FOUND.search(flat, start, end):
            values["toolkit_by_cmake"] = {"root": found_toolkit["root"], "version": found_toolkit["version"]}
    return values


STATEMENTS = Reader("statements", ("",), read_statements)
