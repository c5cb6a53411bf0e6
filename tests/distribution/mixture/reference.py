"""Draws a row's component, then the row: a latent of a mixture, and its log density under the whole mixture."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.logits = nn.Parameter(torch.tensor([0.5, 0.0, -0.5]))

    def forward(self, mu, log_var):
        weights = torch.softmax(self.logits, dim=0)
        component = torch.multinomial(weights.expand(mu.shape[0], -1), 1).squeeze(-1)
        row = torch.arange(mu.shape[0], device=mu.device)
        z = mu[row, component] + torch.exp(0.5 * log_var[row, component]) * torch.randn_like(mu[:, 0])
        log_p = -0.5 * ((z.unsqueeze(1) - mu) ** 2 / log_var.exp() + log_var + 1.8378770664093453)
        return z, torch.logsumexp(log_p.sum(-1) + weights.log(), dim=1)


def get_inputs(rows=32, components=3, columns=8):
    return [torch.randn(rows, components, columns), 0.5 * torch.randn(rows, components, columns)]


def get_init_inputs():
    return []
