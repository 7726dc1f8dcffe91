"""Times torch's library calls; runs in the user's interpreter (Python 3.7 or newer), standard library and torch only.

One JSON request a line on stdin, one JSON answer a line on stdout: {"do": "load"}, then {"do": "prepare", "name", ...},
{"do": "burst", "name", "launches", "flush_bytes"} and {"do": "drop", "name"}. An answer with `error` says what went wrong.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Callable, Dict, List, Tuple

Call = Tuple[str, Callable[[], Any]]


class Server:
    """Keeps what is prepared, by name."""

    def __init__(self) -> None:
        self.torch: Any = None
        self.calls: Dict[str, List[Call]] = {}
        self.flush: Any = None

    def answer(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """The answer to one request; whatever torch raises becomes `error`."""
        try:
            return getattr(self, request["do"])(request)  # type: ignore[no-any-return]  # the methods below
        except Exception as error:  # noqa: BLE001  # foreign code; whatever it raises is the answer
            return {"error": str(error).split("\n")[0] or type(error).__name__}

    def load(self, request: Dict[str, Any]) -> Dict[str, Any]:
        import torch

        self.torch = torch
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.zeros(1, device="cuda:%d" % request["device"])
        torch.cuda.set_device(request["device"])
        return {"torch": torch.__version__, "cuda": torch.version.cuda}

    def prepare(self, request: Dict[str, Any]) -> Dict[str, Any]:
        make = self.gemm if request["op"] == "gemm" else self.attention
        self.calls[request["name"]] = make(request)
        return {"calls": [name for name, _ in self.calls[request["name"]]]}

    def drop(self, request: Dict[str, Any]) -> Dict[str, Any]:
        self.calls.pop(request["name"], None)
        self.torch.cuda.empty_cache()
        return {}

    def dtype(self, name: str) -> Any:
        return {"f32": self.torch.float32, "f16": self.torch.float16, "bf16": self.torch.bfloat16}[name]

    def gemm(self, request: Dict[str, Any]) -> List[Call]:
        """torch.mm with B stored either way."""
        torch, size = self.torch, request["size"]
        a, b = (torch.randn(size, size, device="cuda").to(self.dtype(request["dtype"])) for _ in range(2))
        transposed, d = b.t().contiguous(), torch.empty_like(a)
        return [("torch.mm", lambda: torch.mm(a, b.t(), out=d)), ("torch.mm", lambda: torch.mm(a, transposed, out=d))]

    def attention(self, request: Dict[str, Any]) -> List[Call]:
        """scaled_dot_product_attention as torch chooses, and with each fused backend that takes it."""
        torch = self.torch
        shape = (1, request["heads"], request["length"], request["width"])
        q, k, v = (torch.randn(*shape, device="cuda").to(self.dtype(request["dtype"])) for _ in range(3))
        causal = request["causal"]

        def run() -> Any:
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

        calls: List[Call] = [("SDPA", run)]
        try:
            from torch.nn.attention import SDPBackend, sdpa_kernel
        except ImportError:  # before torch 2.3
            return calls
        for label, name in (("cuDNN", "CUDNN_ATTENTION"), ("FlashAttention", "FLASH_ATTENTION")):
            backend = getattr(SDPBackend, name, None)
            if backend is not None:
                calls.append((label, self.with_backend(sdpa_kernel, backend, run)))
        return [call for call in calls if self.works(call[1])]

    @staticmethod
    def with_backend(choose: Any, backend: Any, run: Callable[[], Any]) -> Callable[[], Any]:
        def chosen() -> Any:
            with choose(backend):
                return run()

        return chosen

    def works(self, call: Callable[[], Any]) -> bool:
        """Does this backend take this problem here?"""
        try:
            call()
            self.torch.cuda.synchronize()
        except RuntimeError:
            return False
        return True

    def burst(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Milliseconds of some launches of each call, the L2 replaced before each."""
        return {"ms": [[name, self.timed(call, request)] for name, call in self.calls[request["name"]]]}

    def timed(self, call: Callable[[], Any], request: Dict[str, Any]) -> List[float]:
        torch = self.torch
        if self.flush is None:
            self.flush = torch.empty(request["flush_bytes"], dtype=torch.uint8, device="cuda")
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(request["launches"])]
        for begin, end in events:
            self.flush.zero_()
            begin.record()
            call()
            end.record()
        torch.cuda.synchronize()
        return [begin.elapsed_time(end) for begin, end in events]


def main() -> None:
    """Serve until stdin ends; what libraries print goes to stderr."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    server = Server()
    for line in sys.stdin:
        channel.write(json.dumps(server.answer(json.loads(line))) + "\n")
        channel.flush()


if __name__ == "__main__":
    main()
