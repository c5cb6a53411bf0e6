"""Draw a latent from a mixture of diagonal Gaussians and give its log density: one forward pass of the model."""

import torch
from torch import nn

# Besides the default: one component and many, a count that is no power of two, dimensions that leave a tail in
# every vector width, a single sample, a batch one past a power of two, and the branch without a mixture in both
# its forms. The large one moves a gigabyte and is for a GPU.
CASES = {
    "default": {},
    "k7": {"init": {"num_components": 7}, "inputs": {"num_components": 7}, "timed": False},
    "k100": {
        "init": {"num_components": 100},
        "inputs": {"batch_size": 33, "num_components": 100},
        "timed": False,
    },
    "d1": {"init": {"latent_dim": 1}, "inputs": {"latent_dim": 1}, "timed": False},
    "d33": {"init": {"latent_dim": 33}, "inputs": {"latent_dim": 33}, "timed": False},
    "d1000": {
        "init": {"latent_dim": 1000},
        "inputs": {"batch_size": 37, "latent_dim": 1000},
        "timed": False,
    },
    "batch1": {"inputs": {"batch_size": 1}, "timed": False},
    "batch257": {"inputs": {"batch_size": 257}, "timed": False},
    "batch4096": {"inputs": {"batch_size": 4096}},
    "single_draw": {
        "init": {"latent_dim": 1, "num_components": 2},
        "inputs": {"batch_size": 1, "num_components": 2, "latent_dim": 1},
        "timed": False,
    },
    "plain_2d": {"inputs": {"num_components": 0}, "timed": False},
    "plain_2d_d1000": {
        "init": {"latent_dim": 1000},
        "inputs": {"batch_size": 257, "num_components": 0, "latent_dim": 1000},
        "timed": False,
    },
    "k1_3d": {"init": {"num_components": 1}, "inputs": {"num_components": 1}, "timed": False},
    "first_of_3": {
        "init": {"latent_dim": 33, "num_components": 1},
        "inputs": {"num_components": 3, "latent_dim": 33},
        "timed": False,
    },
    "k100_d1000": {
        "init": {"latent_dim": 1000, "num_components": 100},
        "inputs": {"num_components": 100, "latent_dim": 1000},
        "devices": ["cuda"],
        "timed": False,
    },
    "batch70001": {
        "init": {"latent_dim": 32, "num_components": 3},
        "inputs": {"batch_size": 70001, "num_components": 3, "latent_dim": 32},
        "devices": ["cuda"],
        "timed": False,
    },
    "large": {
        "init": {"latent_dim": 256, "num_components": 8},
        "inputs": {"batch_size": 65536, "num_components": 8, "latent_dim": 256},
        "devices": ["cuda"],
    },
}


class Model(nn.Module):
    """Pick a component for every sample, draw from it, and evaluate log q(z) under the whole mixture.

    With a single component, or for input without a component axis, it is the plain diagonal Gaussian;
    of a component axis the first entry is taken then. The logits start at zero: equal weights.
    """

    def __init__(self, latent_dim: int, num_components: int = 1) -> None:
        super().__init__()
        self.latent_dim = latent_dim
        self.num_components = num_components
        if num_components > 1:
            self.logits = nn.Parameter(torch.zeros(num_components))

    def forward(self, mu: torch.Tensor, log_var: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return z [batch, latent_dim] and log_q_z [batch].

        `mu` and `log_var` are [batch, num_components, latent_dim] or [batch, latent_dim], float32. The mixture
        draws the components first, the noise second.
        """
        std = torch.exp(0.5 * log_var)
        half_log_2pi = 0.5 * torch.log(torch.tensor(2 * 3.14159265))
        if self.num_components > 1 and mu.dim() == 3:
            weights = torch.softmax(self.logits, dim=0)
            component = torch.multinomial(weights.expand(mu.shape[0], -1), 1).squeeze(-1)
            sample = torch.arange(mu.shape[0], device=mu.device)
            mu_k = mu[sample, component]
            std_k = std[sample, component]
            z = mu_k + std_k * torch.randn_like(mu_k)
            log_probs = -0.5 * ((z.unsqueeze(1) - mu) / std) ** 2 - 0.5 * log_var - half_log_2pi
            log_probs = log_probs.sum(-1) + weights.log().unsqueeze(0)
            return z, torch.logsumexp(log_probs, dim=1)
        if mu.dim() == 3:
            mu, std, log_var = mu[:, 0], std[:, 0], log_var[:, 0]
        z = mu + std * torch.randn_like(mu)
        log_q_z = (-0.5 * ((z - mu) / std) ** 2 - 0.5 * log_var - half_log_2pi).sum(-1)
        return z, log_q_z


def get_inputs(batch_size: int = 256, num_components: int = 4, latent_dim: int = 64) -> list[torch.Tensor]:
    """Draw normal means and halved normal log variances; without components the component axis is left out."""
    axes = [batch_size, num_components, latent_dim] if num_components else [batch_size, latent_dim]
    return [torch.randn(axes), torch.randn(axes) * 0.5]


def get_init_inputs(latent_dim: int = 64, num_components: int = 4) -> list[int]:
    """Give the constructor's arguments."""
    return [latent_dim, num_components]
