"""A Triton kernel: interpreted on a CPU, compiled on a GPU."""

import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x, y, n, SIZE: tl.constexpr):
    place = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(y + place, tl.load(x + place, mask=place < n) * 2 + 1, mask=place < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), SIZE=64)
        return y
