"""A plain Triton kernel with autotuning: many launches and timings of its own in the first call."""

import torch
import triton
import triton.language as tl
from torch import nn

EXPECT = {"status": "pass", "run": "time", "devices": ["cuda"]}


@triton.autotune(configs=[triton.Config({"BLOCK": block}, num_warps=4) for block in (256, 1024)], key=["n"])
@triton.jit
def silu_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(out + at, value / (1.0 + tl.exp(-value)), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        n = x.numel()
        silu_kernel[lambda config: (triton.cdiv(n, config["BLOCK"]),)](x, out, n)
        return out
