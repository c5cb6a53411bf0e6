"""C++ through load_inline."""

import torch
from torch.utils.cpp_extension import load_inline

DEVICES = ("cpu",)
module = load_inline(name="works", cpp_sources="torch::Tensor run(torch::Tensor x) { return x * 2 + 1; }", functions=["run"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return module.run(x)
