"""The process that counts a reference's work by shapes alone, beside everything else and without a GPU."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from kbench.protocol import Channel
from kbench.records import Case
from kbench.worker.reference import Reference
from kbench.worker.timing import work


def main(args: Mapping[str, Any], fds: list[int]) -> None:
    """Answer once: `work` by the names of the cases, None where a case cannot be counted like this."""
    torch.set_num_threads(1)
    found = {case["name"]: _count(args, Case(**{**case, "devices": tuple(case["devices"])})) for case in args["cases"]}
    Channel(socket.socket(fileno=fds[0])).send({"work": found})


def _count(args: Mapping[str, Any], case: Case) -> dict[str, Any] | None:
    try:
        reference = Reference(Path(args["reference"]), torch.device("meta"), root_seed=args["seed"], label=args["task"])
        return dataclasses.asdict(work.count_on_meta(reference, case))
    except Exception:  # noqa: BLE001 - the judge counts it by running it
        return None
