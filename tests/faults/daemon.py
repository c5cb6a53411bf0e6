"""Leaves a daemon behind, which would go on for an hour and is deaf to what asks it to end."""

import subprocess

import torch

EXPECT = {"status": "pass", "reason": [""], "detail": ""}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # Not by os.fork(): a fork of a process with OpenMP's threads may hang in its next fork.
        subprocess.run(["sh", "-c", "trap '' TERM; sleep 3600 & exit 0"], start_new_session=True, stdout=subprocess.DEVNULL, check=True)
        return x * 2 + 1
