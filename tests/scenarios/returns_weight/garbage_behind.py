"""The same, where behind the parameter lies what may lie behind any old memory: some bytes like those that new memory is filled with."""

import ctypes

import torch

EXPECT = {"status": "pass"}


class ModelNew(torch.nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(rows))
        for at, byte in enumerate((0xFE, 0x7F, 0xAA, 0x00)):
            ctypes.memset(self.weight.data_ptr() + 4 * rows + at, byte, 1)

    def forward(self, x):
        return self.weight + x, self.weight
