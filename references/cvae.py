"""A conditional variational autoencoder: one forward pass to its three losses."""

import torch
import torch.nn.functional as F
from torch import nn

# Besides the default: a single sample, a batch one past a power of two, a batch of many tiles, and dimensions
# that leave a tail in every tile and vector width. The large ones are for a GPU.
CASES = {
    "default": {},
    "batch1": {"inputs": {"batch_size": 1}, "timed": False},
    "batch257": {"inputs": {"batch_size": 257}, "timed": False},
    "batch4096": {"inputs": {"batch_size": 4096}, "timed": False},
    "narrow": {
        "init": {"input_dim": 33, "label_dim": 1, "hidden_dim": 64, "latent_dim": 1},
        "inputs": {"batch_size": 37, "input_dim": 33, "label_dim": 1},
        "timed": False,
    },
    "wide": {
        "init": {"input_dim": 1000, "label_dim": 7, "hidden_dim": 100, "latent_dim": 33},
        "inputs": {"batch_size": 65, "input_dim": 1000, "label_dim": 7},
        "timed": False,
    },
    "latent64": {
        "init": {"latent_dim": 64},
        "inputs": {"batch_size": 100},
        "timed": False,
    },
    "large": {"inputs": {"batch_size": 65536}, "devices": ["cuda"]},
    "large_odd": {
        "init": {"input_dim": 33, "label_dim": 7, "hidden_dim": 100, "latent_dim": 33},
        "inputs": {"batch_size": 40001, "input_dim": 33, "label_dim": 7},
        "devices": ["cuda"],
        "timed": False,
    },
}


class Model(nn.Module):
    """Encode `x` given `y`, draw one latent a sample, decode it, and score reconstruction and prior."""

    def __init__(self, input_dim: int, label_dim: int, hidden_dim: int, latent_dim: int) -> None:
        super().__init__()
        self.enc = nn.Sequential(
            nn.Linear(input_dim + label_dim, hidden_dim),
            nn.ReLU(),
        )
        self.enc_mu = nn.Linear(hidden_dim, latent_dim)
        self.enc_logvar = nn.Linear(hidden_dim, latent_dim)
        self.dec = nn.Sequential(
            nn.Linear(latent_dim + label_dim, hidden_dim),
            nn.ReLU(),
            nn.Linear(hidden_dim, input_dim),
        )

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return loss, reconstruction loss and KL divergence, summed over features, averaged over samples.

        `x` is [batch, input_dim], `y` is [batch, label_dim], both float32; the results are scalars.
        """
        hidden = self.enc(torch.cat([x, y], dim=1))
        mu = self.enc_mu(hidden)
        logvar = self.enc_logvar(hidden)
        std = torch.exp(0.5 * logvar)
        z = mu + std * torch.randn_like(std)
        x_recon = self.dec(torch.cat([z, y], dim=1))
        recon_loss = F.mse_loss(x_recon, x, reduction="sum") / x.shape[0]
        kl_loss = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum() / x.shape[0]
        return recon_loss + kl_loss, recon_loss, kl_loss


def get_inputs(batch_size: int = 128, input_dim: int = 256, label_dim: int = 10) -> list[torch.Tensor]:
    """Draw normal features [batch_size, input_dim] and one-hot labels [batch_size, label_dim]."""
    x = torch.randn(batch_size, input_dim)
    labels = torch.randint(0, label_dim, (batch_size,))
    return [x, F.one_hot(labels, label_dim).float()]


def get_init_inputs(
    input_dim: int = 256, label_dim: int = 10, hidden_dim: int = 128, latent_dim: int = 32
) -> list[int]:
    """Give the constructor's arguments."""
    return [input_dim, label_dim, hidden_dim, latent_dim]
