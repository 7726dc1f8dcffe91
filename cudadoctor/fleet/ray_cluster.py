"""Runs a command on every node of a Ray cluster: one task pinned to each. Needs the extra `ray`."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Generator, Mapping
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from cudadoctor.fleet.launchers import MARGIN_S, Asking, LauncherError
from cudadoctor.fleet.node_answer import Answer, answer_of

LOOK_EVERY_S = 1.0


def run_command(command: tuple[str, ...], limit_s: float) -> tuple[str, str, str]:
    """In a task: standard output, standard error, and how it ended where not with an exit code of `check`.

    Ray hides the GPUs from a task that asks for none, by an empty CUDA_VISIBLE_DEVICES; this one looks at all.
    """
    env = {name: value for name, value in os.environ.items() if (name, value) != ("CUDA_VISIBLE_DEVICES", "")}
    try:
        done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        return "", "", f"gave no answer within {limit_s:.0f} s"
    except OSError as error:
        return "", "", f"cannot run {command[0]}: {error.strerror}"
    ending = f"exit code {done.returncode}" if done.returncode else ""
    return done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"), ending


def connect() -> None:
    """Join the cluster that RAY_ADDRESS names, else that of this machine; raises LauncherError where there is none."""
    try:
        ray.init(address="auto", log_to_driver=False, logging_level="ERROR", ignore_reinit_error=True)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise LauncherError(f"no Ray cluster answers: {_first_sentence(str(error))}") from error


def cluster_nodes() -> tuple[dict[str, str], tuple[Answer, ...]]:
    """The live nodes, name to Ray's id, and those that Ray lists as dead. Names of nodes on one host contain their ids."""
    rows: list[Mapping[str, Any]] = ray.nodes()
    hosts = [row["NodeManagerHostname"] for row in rows]
    names = {
        row["NodeID"]: host if hosts.count(host) == 1 else f"{host}-{row['NodeID'][:8]}"
        for row, host in zip(rows, hosts, strict=True)
    }
    live = {names[row["NodeID"]]: row["NodeID"] for row in rows if row["Alive"]}
    dead = {names[row["NodeID"]]: row.get("DeathReasonMessage") or "no reason is given" for row in rows if not row["Alive"]}
    return live, tuple(Answer(name, because=f"Ray says that it is dead: {reason}") for name, reason in dead.items())


def ask_ray(nodes: Mapping[str, str], asking: Asking) -> Generator[Answer, None, None]:
    """Each node's answer as it comes; a node that dies meanwhile, or does not start the task in time, is an answer too."""
    remote = ray.remote(num_cpus=0, max_retries=0)(run_command)
    waiting = {}
    for name, identity in nodes.items():
        pinned = remote.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=identity, soft=False))
        waiting[pinned.remote((*asking.command, "--node", name), asking.check_s + MARGIN_S)] = name
    deadline = time.monotonic() + asking.start_s + asking.check_s + 2 * MARGIN_S
    while waiting and time.monotonic() < deadline:
        done, _ = ray.wait(list(waiting), num_returns=len(waiting), timeout=LOOK_EVERY_S)
        for task in done:
            yield _answer(waiting.pop(task), task)
    for task, name in waiting.items():
        ray.cancel(task, force=True)
        yield Answer(name, because="the task did not end in time")


def _answer(name: str, task: Any) -> Answer:
    try:
        stdout, stderr, ending = ray.get(task)
    except ray.exceptions.RayError as error:
        return Answer(name, because=f"Ray: {_first_sentence(str(error))}")
    return answer_of(name, stdout, stderr, ending)


def _first_sentence(text: str) -> str:
    return text.strip().partition("\n")[0].partition(". ")[0][:200]
