"""The parent's side of the torch child: facts as soon as torch is imported, then the proof that it computes."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cudadoctor.background import started
from cudadoctor.model.fact import Missing, MissingReason
from cudadoctor.model.proof import Proof
from cudadoctor.model.snapshot import Gpu, PythonEnvironment
from cudadoctor.probes.asking import not_started, unsuccessful
from cudadoctor.probes.nvml import parse_line
from cudadoctor.probes.python_env import ChosenPython, parse_environment, with_torch
from cudadoctor.probes.torch_facts import SOURCE, event_words, parse_torch
from cudadoctor.probes.torch_proofs import gpu_index, parse_proofs
from cudadoctor.process import GRACE_SECONDS, ProgramNotFoundError

if TYPE_CHECKING:
    from cudadoctor.process import Completed, RunningProgram
    from cudadoctor.system import System

CHILD = Path(__file__).with_name("_torch_child.py")
LONGEST_LIFE_S = 3600.0
"""Longest time for which a child's lines are waited for; whoever asks has a deadline of its own."""
CRASH_FRAME = re.compile(r'most recent call first\):\s+File "([^"]+)", line (\d+)')
LAST_FACT = frozenset({"torch_cuda", "torch_absent", "torch_import_error", "end"})
"""Lines after which the child has no more facts to tell."""


class TorchChild:
    """A running child; a thread collects its lines, so any thread may ask for what is known."""

    def __init__(self, program: RunningProgram | Missing, chosen: ChosenPython) -> None:
        """A child that could not be started is the reason for that."""
        self._program: RunningProgram | Missing = program
        self.chosen = chosen
        self._events: list[dict[str, Any]] = []
        self._completed: Completed | None = None
        self._ended_by_us = False
        self._started = time.monotonic()
        self._changed = threading.Condition()
        if isinstance(program, Missing):
            return
        refused = started(threading.Thread(target=self._collect, args=(program,), name="torch child", daemon=True))
        if refused is not None:
            program.kill()
            self._program = Missing(MissingReason.FAILED, f"nobody could listen to it: {refused}", SOURCE)

    def package_folders(self, deadline: float) -> tuple[str, ...]:
        """Where the interpreter looks for packages; empty where it did not say by `deadline` (time.monotonic())."""
        events = self._wait_for(frozenset({"python"}), deadline)
        path = events["python"]["path"] if "python" in events else ()
        return tuple(folder for folder in path if folder.rstrip("/\\").endswith("-packages"))

    def facts(self, deadline: float) -> PythonEnvironment:
        """The interpreter and its torch, as far as known at `deadline` (time.monotonic()); the child goes on with the proofs."""
        events = self._wait_for(LAST_FACT, deadline)
        unsaid = self._unsaid()
        return with_torch(parse_environment(events, self.chosen, unsaid), parse_torch(events, unsaid))

    def proofs(self, deadline: float, gpus: Sequence[Gpu] = ()) -> tuple[Proof, ...]:
        """The proofs of layer `torch`; at `deadline` the child is ended, and what it did not prove is unknown."""
        self._wait_for(frozenset({"end"}), deadline)
        self.stop()
        with self._changed:
            events = tuple(self._events)
        return parse_proofs(events, self._unsaid(), gpus)

    def gpus(self, gpus: Sequence[Gpu] = ()) -> tuple[int, ...]:
        """The report's numbers of the devices that torch sees, in torch's order; empty where it did not say."""
        with self._changed:
            seen = next((event["devices"] for event in self._events if event["event"] == "torch_cuda"), ())
        return tuple(gpu_index(device, gpus) for device in seen)

    def stop(self) -> None:
        """End the child, where it has not ended by itself."""
        if isinstance(self._program, Missing):
            return
        with self._changed:
            finished = self._completed is not None or any(event["event"] == "end" for event in self._events)
            self._ended_by_us = self._ended_by_us or not finished
        if not finished:
            self._program.kill()
        with self._changed:
            ended = self._changed.wait_for(lambda: self._completed is not None, GRACE_SECONDS)
        if not ended:
            self._program.kill()  # torch started a process that keeps the pipes

    @property
    def said(self) -> str:
        """The error texts among the facts, for the table of known errors, and stderr where the child ended without all facts."""
        with self._changed:
            facts = [event for event in self._events if event["event"] not in {"proof", "step"}]
            words = [text for event in facts for text in event_words(event)]
            told = any(event["event"] in LAST_FACT for event in facts)
            return "\n".join([*words, self._completed.stderr if self._completed is not None and not told else ""])

    def _collect(self, program: RunningProgram) -> None:
        """Take in line after line until the child closes its output, then see how it ended."""
        while (line := program.read_line(self._started + LONGEST_LIFE_S)) is not None:
            with self._changed:
                self._events += parse_line(line)
                self._changed.notify_all()
        completed = program.finish(time.monotonic() + GRACE_SECONDS)
        with self._changed:
            self._completed = completed
            self._changed.notify_all()

    def _wait_for(self, kinds: frozenset[str], deadline: float) -> dict[str, dict[str, Any]]:
        """The lines by kind, once one of `kinds` is there, the child has ended, or it is `deadline`."""

        def settled() -> bool:
            return self._completed is not None or any(event["event"] in kinds for event in self._events)

        with self._changed:
            if not isinstance(self._program, Missing):
                self._changed.wait_for(settled, max(deadline - time.monotonic(), 0))
            return {event["event"]: event for event in self._events}

    def _unsaid(self) -> Missing:
        """Why what was not said was not said."""
        if isinstance(self._program, Missing):
            return self._program
        waited = time.monotonic() - self._started
        with self._changed:
            steps = [event["doing"] for event in self._events if event["event"] == "step"]
            completed = None if self._ended_by_us else self._completed
        doing = steps[-1] if steps else "starting Python"
        if completed is None:
            return Missing(MissingReason.TIMEOUT, f"{doing}: no answer within {waited:.1f} s", SOURCE)
        failure = unsuccessful(replace(completed, stdout=""), waited, SOURCE)
        if failure is not None and completed.signal_name:
            return Missing(failure.reason, f"{doing}: died of {completed.signal_name}{crash_place(completed.stderr)}", SOURCE)
        if failure is not None:
            return Missing(failure.reason, f"{doing}: {failure.detail}", SOURCE)
        return Missing(MissingReason.FAILED, f"{doing}: the child ended without a word about it", SOURCE)


def crash_place(stderr: str) -> str:
    """Where Python's fault handler saw the crash, as a clause; empty where it says nothing.

    Sample:
        Fatal Python error: Segmentation fault

        Current thread 0x00007f0ff688bb80 (most recent call first):
          File "/venv/lib/python3.11/site-packages/torch/__init__.py", line 10 in <module>
    """
    match = CRASH_FRAME.search(stderr)
    return f" at {match[1]}, line {match[2]}" if match else ""


def start_torch_child(system: System, chosen: ChosenPython, *options: str) -> TorchChild:
    """Start the child in the user's interpreter and environment, where it writes nothing, not even bytecode (-B).

    `--no-proofs` leaves out the computations.
    """
    try:
        return TorchChild(system.start((chosen.executable, "-B", str(CHILD), *options)), chosen)
    except ProgramNotFoundError as error:
        return TorchChild(not_started(error, SOURCE), chosen)
