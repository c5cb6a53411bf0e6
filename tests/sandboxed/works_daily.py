"""What honest candidates do beside computing: threads, processes, temporary files, a program."""

import subprocess
import tempfile
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"mine")
        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(abs, [-1, 2])) == [1, 2]
        with ProcessPoolExecutor(2) as pool:
            assert list(pool.map(abs, [-1, 2])) == [1, 2]
        assert subprocess.run(["cat", "/proc/self/comm"], capture_output=True, text=True, check=True).stdout == "cat\n"

    def forward(self, x):
        return (x @ torch.eye(x.shape[-1], device=x.device)) * 2 + 1
