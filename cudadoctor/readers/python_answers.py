"""Reads answers of one-line checks: `torch.__version__`, `torch.cuda.get_arch_list()`, `tf.test.is_built_with_cuda()` ..."""

from __future__ import annotations

import re

from cudadoctor.readers.prompts import answer, commands
from cudadoctor.readers.reader import Reader, Values, truth
from cudadoctor.readers.text import PlainText

_VERSION = re.compile(r"['\"]?(\d{1,4}\.\d{1,4}[\w.+-]{0,60})['\"]?")
_CUDA = re.compile(r"['\"]?(\d{1,2}\.\d{1,2}(?:\.\d{1,4})?)['\"]?|\b(None)\b")
_BOOL = re.compile(r"\b(True|False)\b")
_LIST = re.compile(r"\[([^\]]{0,4000})\]")
_INT = re.compile(r"\b(\d{1,6})\b")
_NAME = re.compile(r"['\"]([^'\"\n]{2,100})['\"]|^([A-Z][^\n]{3,100})$", re.MULTILINE)
_PAIR = re.compile(r"\((\d{1,2}), (\d{1,2})\)")

_EXPRESSIONS: tuple[tuple[str, str, re.Pattern[str]], ...] = (
    ("torch_version", "torch.__version__", _VERSION),
    ("torch_version", "torch.version.__version__", _VERSION),
    ("torch_cuda", "torch.version.cuda", _CUDA),
    ("torch_hip", "torch.version.hip", _CUDA),
    ("cuda_available", "torch.cuda.is_available()", _BOOL),
    ("arch_list", "torch.cuda.get_arch_list()", _LIST),
    ("device_count", "torch.cuda.device_count()", _INT),
    ("device_name", "torch.cuda.get_device_name", _NAME),
    ("device_capability", "torch.cuda.get_device_capability", _PAIR),
    ("cudnn_version", "torch.backends.cudnn.version()", _INT),
    ("cxx11_abi", "torch.compiled_with_cxx11_abi()", _BOOL),
    ("cxx11_abi", "torch._C._GLIBCXX_USE_CXX11_ABI", _BOOL),
    ("tf_version", "tf.__version__", _VERSION),
    ("tf_version", "tensorflow.__version__", _VERSION),
    ("tf_built_with_cuda", "tf.test.is_built_with_cuda()", _BOOL),
    ("tf_gpus", "tf.config.list_physical_devices('GPU')", _LIST),
    ("tf_gpus", 'tf.config.list_physical_devices("GPU")', _LIST),
    ("tf_gpus", "tf.config.experimental.list_physical_devices('GPU')", _LIST),
    ("tf_gpu_available", "tf.test.is_gpu_available()", _BOOL),
    ("jax_devices", "jax.devices()", _LIST),
    ("ort_providers", "get_available_providers()", _LIST),
    ("jax_version", "jax.__version__", _VERSION),
)
_RAISED = re.compile(r"^(?:Traceback \(most recent call last\)|\w{0,40}(?:Error|Exception)\b)", re.MULTILINE)
_SPOKEN = re.compile(
    r"(?P<expression>torch\.cuda\.is_available\(\)|is_available\(\)|torch\.version\.cuda"
    r"|torch\.__version__)\s{0,4}(?:=|:|->|is|returns|returned)\s{0,4}(?P<value>True|False|None"
    r"|['\"]?\d[\w.+]{1,40}['\"]?)"
)


def read_answers(text: PlainText) -> Values | None:
    """Expressions typed at a prompt or in `python -c`, each with its value, in the order of the questions."""
    values: Values = {}
    typed = commands(text)
    for position, command in enumerate(typed):
        asked = _asked(command.text)
        if asked:
            _take(values, asked, "\n".join(answer(text, typed, position)))
    for spoken in _SPOKEN.finditer(text.body):
        expression = "torch.cuda.is_available()" if "is_available" in spoken["expression"] else spoken["expression"]
        _take(values, _asked(expression), spoken["value"])
    return values or None


def _asked(command: str) -> list[tuple[str, re.Pattern[str]]]:
    command = command.replace("range(torch.cuda.device_count())", "")
    places = [(command.find(words), name, shape) for name, words, shape in _EXPRESSIONS if words in command]
    return [(name, shape) for _, name, shape in sorted(places, key=lambda place: place[0])]


def _take(values: Values, asked: list[tuple[str, re.Pattern[str]]], said: str) -> None:
    raised = _RAISED.search(said)
    if raised and not re.match(r"\s{0,4}\S{1,60}(?: \S{1,60}){0,4}\n", said[: raised.start() + 1]):
        said = said[: raised.start()]
    position = 0
    for name, shape in asked:
        match = shape.search(said, position)
        if match is None:
            return
        position = match.end()
        values.setdefault(name, _value(name, match))


def _value(name: str, match: re.Match[str]) -> object:
    groups = [group for group in match.groups() if group is not None]
    if name == "device_capability":
        return f"{match[1]}.{match[2]}"
    if name in ("arch_list", "tf_gpus", "jax_devices", "ort_providers"):
        return [word.strip(" '\"\n") for word in groups[0].split(",") if word.strip()]
    word = groups[0]
    if word == "None":
        return None
    known = truth(word) if word in ("True", "False") else None
    if known is not None:
        return known
    return int(word) if name in ("device_count", "cudnn_version") else word


PYTHON_ANSWERS = Reader("python_answers", ("torch.", "tf.", "tensorflow.", "jax.", "providers"), read_answers)
