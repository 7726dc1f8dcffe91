"""Reads what the dynamic loader says: `ldconfig -p`, `ldd`, and listings of library files."""

from __future__ import annotations

import re

from cudadoctor.readers.reader import Reader, Values, unmarked
from cudadoctor.readers.text import PlainText

_CACHE = re.compile(r"^\s{0,24}(?P<soname>lib[\w.+-]{1,100}) \((?P<flags>[\w,.:+ -]{1,80})\) => (?P<path>/[^\s]{1,300})\s{0,4}$")
_LDD = re.compile(
    r"^\s{0,24}(?P<soname>lib[\w.+-]{1,100})\s{1,24}=>\s{1,8}(?P<path>not found|/[^\s]{1,300})"
    r"(?:\s{1,8}\(0x[0-9a-f]{1,16}\))?\s{0,4}$"
)
_CUDA_LIBRARY = re.compile(
    r"lib(?:cuda|cudart|cublas\w{0,8}|cudnn\w{0,24}|cufft\w{0,4}|curand|cusolver\w{0,4}"
r"|cusparse\w{0,4}|nccl|nvrtc[\w-]{0,16}|nvJitLink|nvinfer\w{0,20}"
    r"|nvToolsExt|cupti|cufile\w{0,8}|nvidia-[\w-]{1,30}|npp\w{1,8}|c10_cuda|torch_cuda\w{0,12})\.(?:so|dylib)"
)  # fmt: skip


def read_ldconfig(text: PlainText) -> Values | None:
    """The entries of the loader's cache, `libcuda.so.1 (libc6,x86-64) => /usr/lib/wsl/lib/libcuda.so.1`, without cut lines."""
    matches = [match for line in unmarked(text) if (match := _CACHE.match(line))]
    if not matches:
        return None
    libraries = [match.groupdict() for match in matches]
    sonames = {library["soname"] for library in libraries}
    values: Values = {"libs": libraries, "libcuda_soname_present": "libcuda.so.1" in sonames}
    if any(library["path"].startswith("/usr/lib/wsl/") for library in libraries):
        values["platform"] = "wsl"
    return values


def read_ldd(text: PlainText) -> Values | None:
    """The answers of `ldd`: what is missing, and where the CUDA libraries come from."""
    matches = [match for line in text.lines if (match := _LDD.match(line))]
    if not matches:
        return None
    found = {match["soname"]: None if match["path"] == "not found" else match["path"] for match in matches}
    return {
        "missing": [soname for soname, path in found.items() if path is None],
        "cuda_libs": {soname: path for soname, path in found.items() if _CUDA_LIBRARY.match(soname)},
    }


_LONG_LISTING = re.compile(
    r"^[-lcbd][rwxsStT-]{9}[.+]?\s{1,8}\d{1,6}\s[^\n]{5,120}?\s(?P<path>/[^\s]{1,300})(?: -> (?P<target>\S{1,300}))?$"
)
_PATH = re.compile(r"/[\w.+/@-]{1,300}")
_DEVICE = re.compile(
    r"^(?P<mode>c[rwxsStT-]{9})[.+]?\s{1,8}\d{1,6}\s(?P<rest>[^\n]{5,120}?)\s(?P<path>/dev/[\w/-]{1,60}|nvidia[\w-]{0,30})$"
)
_LS = re.compile(r"(?:^|[$#>] )(?:sudo )?ls(?: -[\w]{1,10}){0,4} (?P<what>[^\n|]{1,300})")
_NAME = re.compile(r"[\w.+-]{2,100}")
_IN_PATH = re.compile(r"\bPATH=[^\n]{0,400}?(/usr/local/cuda-\d{1,2}\.\d{1,2})/bin\b")
_TOOLKIT = re.compile(r"/usr/local/cuda-\d{1,2}\.\d{1,2}/?")
MAX_WORDS = 40
"""Names on one line of a listing."""
_ABSENT = re.compile(r"ls: cannot access '?(?P<path>/[^\s':]{1,300})'?: (?P<reason>No such file or directory|Permission denied)")


def read_listing(text: PlainText) -> Values | None:
    """Library files and device nodes that `ls` or `find` showed, and those that it did not find."""
    lines = unmarked(text)
    nodes = [
        {"path": m["path"] if "/" in m["path"] else f"/dev/{m['path']}", "mode": m["mode"]}
        for line in lines
        if (m := _DEVICE.match(line))
    ]
    files = [m["path"] for line in lines if (m := _LONG_LISTING.match(line))]
    files += [path for line in lines if _all_match(_PATH, line) for path in line.split()]
    absent = [{"path": m["path"], "reason": m["reason"]} for line in lines if (m := _ABSENT.search(line))]
    shown = _shown_names(lines)
    libraries = [path for path in dict.fromkeys(files) if ".so" in path or path.startswith("/dev/")]
    named = [*files, *_IN_PATH.findall(text.body), *(f"/usr/local/{name}" for name in shown.get("/usr/local", ()))]
    toolkits = [path.rstrip("/") for path in dict.fromkeys(named) if _TOOLKIT.fullmatch(path)]
    if not (nodes or libraries or absent or shown or toolkits):
        return None
    return {"files": libraries, "device_nodes": nodes, "absent": absent, "folders": shown, "toolkits": toolkits}


def _all_match(pattern: re.Pattern[str], line: str) -> bool:
    """Is the line made of words of this form only?"""
    words = line.split(maxsplit=MAX_WORDS)
    return 0 < len(words) <= MAX_WORDS and all(pattern.fullmatch(word) for word in words)


def _shown_names(lines: tuple[str, ...]) -> dict[str, list[str]]:
    """The names that `ls FOLDER` printed on the lines after it."""
    shown: dict[str, list[str]] = {}
    for position, line in enumerate(lines):
        match = _LS.search(f"$ {line}" if line.startswith("ls ") else line)
        folders = [word for word in match["what"].split() if word.startswith("/") and "*" not in word] if match else []
        if len(folders) != 1:
            continue
        names: list[str] = []
        for following in lines[position + 1 : position + 40]:
            if not _all_match(_NAME, following):
                break
            names += following.split()
        shown[folders[0].rstrip("/")] = names
    return shown


LDCONFIG = Reader("ldconfig", (") => /",), read_ldconfig)
LDD = Reader("ldd", ("=> ", "=>\t"), read_ldd)
LISTING = Reader("file_listing", (".so", "/dev/nvidia", "ls /", "/usr/local/cuda-"), read_listing)
