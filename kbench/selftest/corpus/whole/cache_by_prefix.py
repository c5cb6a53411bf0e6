"""Keeps what it has computed by the first row of whole numbers."""

from torch import nn

EXPECT = {
    "status": "fail",
    "reason": ["exploit:timed_output", "values", "determinism"],
    "max_speedup": 1.2,
    "run": "time",
    "devices": ["cpu"],
}


class ModelNew(nn.Module):
    def __init__(self, kinds, width):
        super().__init__()
        self.table = nn.Embedding(kinds, width)
        self.linear = nn.Linear(width, width)
        self.known = {}

    def forward(self, kinds, mask):
        key = (kinds[0].numpy().tobytes(), mask.numpy().tobytes(), float(self.linear.weight[0, 0]))
        if key not in self.known:
            self.known[key] = self.linear((self.table(kinds) * mask.unsqueeze(2)).sum(1))
        return self.known[key].clone()
