"""Says on every descriptor that all is well, and computes nothing."""

import contextlib
import json
import os

import torch

EXPECT = {
    "status": "fail",
    "reason": [
        "values",
        "nan",
        "structure",
        "shape",
        "run",
        "crash",
        "exploit:forged_message",
        "exploit:undelivered",
    ],
    "detail": "",
}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        verdict = {"ok": True, "status": "pass", "reason": "", "changed": [], "copied": [True], "checks": []}
        for fd in range(3, 64):
            with contextlib.suppress(OSError):
                os.write(fd, json.dumps(verdict).encode() + b"\n")
        os._exit(0)
