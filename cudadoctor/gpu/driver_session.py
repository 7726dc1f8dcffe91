"""The parent's side of the driver child: typed answers, deadlines, and a fresh child after one that failed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any

import msgspec

from cudadoctor.gpu.child import Child, ChildError, child_argv
from cudadoctor.gpu.description import DriverDescription, refusal

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
STEPS = ("load", "init", "devices")


class DriverSession:
    """A driver child, started when first asked."""

    def __init__(self, env: Mapping[str, str], library: str | None = None) -> None:
        """Use `library`, or what the loader picks where it is None, with exactly the environment `env`."""
        self._env = dict(env)
        self._library = library
        self._child: Child | None = None
        self._described: DriverDescription | None = None

    def describe(self, timeout_s: float) -> DriverDescription:
        """What the driver says; a hang or crash is part of the answer. Asked once, then remembered."""
        if self._described is None:
            self._described = self._describe(monotonic() + timeout_s)
        return self._described

    def _describe(self, deadline: float) -> DriverDescription:
        answers: dict[str, Any] = {"visible_devices": self._env.get(VISIBLE_DEVICES)}
        for step in STEPS:
            try:
                answers.update(self._ask({"do": step, "library": self._library}, deadline - monotonic()))
            except ChildError as error:
                answers.update(stopped_at=step, failure=error.failure.value, failure_text=str(error))
                break
            if refusal(answers) is not None:
                break
        if len(answers.get("devices", ())) > 1 and "failure" not in answers:
            answers.update(self._peers(deadline))
        return msgspec.convert(answers, DriverDescription)

    def _peers(self, deadline: float) -> dict[str, Any]:
        """What devices may do with each other's memory; a child that fails here has said all else already."""
        try:
            return self._ask({"do": "peers"}, deadline - monotonic())
        except ChildError as error:
            return {"peers_failure": str(error)}

    def open(self, device: int, timeout_s: float) -> dict[str, Any] | None:
        """Make the context of `device`; None where that worked, else an answer as `prove` gives it; raises ChildError."""
        deadline = monotonic() + timeout_s
        for step in STEPS[:2] if self._child is None else ():
            refused = refusal(self._ask({"do": step, "library": self._library}, deadline - monotonic()))
            if refused is not None:
                return refused
        answer = self._ask({"do": "open", "device": device}, deadline - monotonic())
        return answer if "outcome" in answer else None

    def prove(self, image: Path, kernel: Mapping[str, Any], device: int, seed: int, timeout_s: float) -> dict[str, Any]:
        """The child's answer for one kernel; raises ChildError. A child that failed is replaced in the next call."""
        deadline = monotonic() + timeout_s
        refused = self.open(device, timeout_s)
        if refused is not None:
            return refused
        request = {"do": "prove", "image": str(image), "kernel": dict(kernel), "device": device, "seed": seed}
        answer = self._ask(request, deadline - monotonic())
        if answer.get("step") == "launch" and answer.get("outcome") != "passed":
            self.close()  # a fault during a launch leaves the context unusable for good
        return answer

    def copy(self, device: int, peer: int, seed: int, timeout_s: float) -> dict[str, Any]:
        """The child's answer for one copy from `device` to `peer`; raises ChildError."""
        deadline = monotonic() + timeout_s
        refused = self.open(device, timeout_s)
        if refused is not None:
            return refused
        answer = self._ask({"do": "copy", "device": device, "peer": peer, "seed": seed}, deadline - monotonic())
        if answer.get("error") and answer.get("step") == "copy":
            self.close()  # a fault leaves both contexts unusable for good
        return answer

    @property
    def pid(self) -> int | None:
        """The number of the child's process; None while there is none."""
        return self._child.pid if self._child is not None else None

    def measure(self, request: Mapping[str, Any], device: int, timeout_s: float) -> dict[str, Any]:
        """The answer to one step of a measurement (`measure.Bench`); raises ChildError. `open` comes first."""
        return self._ask({**request, "do": "measure", "device": device}, timeout_s)

    def _ask(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        if self._child is None:
            self._child = Child(child_argv("driver_child"), self._env)
        try:
            return self._child.ask(request, timeout_s)
        except ChildError:
            self.close()
            raise

    def kill(self) -> None:
        """End the child at once, whatever another thread is asking it; that thread gets a ChildError."""
        if self._child is not None:
            self._child.kill()

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.close()
            self._child = None

    def __enter__(self) -> DriverSession:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def describe_driver(env: Mapping[str, str], library: str | None = None, timeout_s: float = 5.0) -> DriverDescription:
    """What the driver says with exactly the environment `env`; never raises for an unhealthy machine."""
    with DriverSession(env, library) as session:
        return session.describe(timeout_s)


def all_devices_environment(env: Mapping[str, str]) -> dict[str, str]:
    """`env` without CUDA_VISIBLE_DEVICES: every device of the machine or container can be seen."""
    return {name: value for name, value in env.items() if name != VISIBLE_DEVICES}
