"""Writes a source of its own, and builds that."""

import os
import tempfile

import torch
from torch.utils.cpp_extension import load

EXPECT = {"status": "pass"}

path = os.path.join(tempfile.mkdtemp(), "rectifier.cpp")
with open(path, "w") as file:
    file.write("""#include <torch/extension.h>
torch::Tensor rectify(torch::Tensor x) { return torch::relu(x); }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("rectify", &rectify); }
""")
rectifier = load(name="rectifier", sources=[path])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return rectifier.rectify(x)
