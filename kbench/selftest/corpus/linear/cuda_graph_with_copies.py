"""Replays a graph with the input copied in before and the output copied out after; captured anew when need be."""

import torch
from torch import nn

EXPECT = {"status": "pass", "run": "time", "devices": ["cuda"]}


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)
        self.key = self.graph = None

    def forward(self, x):
        weight = self.linear.weight
        key = (x.shape, weight.data_ptr(), self.linear.bias.data_ptr())
        if self.key != key:
            self.key = key
            self.x = x.clone()
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                nn.functional.gelu(self.linear(self.x))
            torch.cuda.current_stream().wait_stream(side)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.out = nn.functional.gelu(self.linear(self.x))
        self.x.copy_(x)
        self.graph.replay()
        return self.out.clone()
