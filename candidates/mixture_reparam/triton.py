"""Torch draws, in the reference's order; one Triton program a sample computes z and log q(z).

A program goes over the dimensions once. For each block of them it makes z and adds up the log density of every
component, so that each input is read once and any number of components and dimensions fits.
"""

import math

import torch
import triton
import triton.language as tl
from torch import nn

# Dimensions that a program holds at a time: enough loads in flight for one warp, or for four.
MAX_BLOCK = 1024


@triton.jit
def mixture_kernel(  # type: ignore[no-untyped-def]
    mu_ptr,
    log_var_ptr,
    weights_ptr,
    component_ptr,
    noise_ptr,
    z_ptr,
    log_q_z_ptr,
    components,
    dims,
    sample_stride,
    half_log_2pi,
    MIXTURE: tl.constexpr,
    COMPONENTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute one sample; without a mixture its first component alone counts."""
    sample = tl.program_id(0).to(tl.int64)
    component = tl.load(component_ptr + sample) if MIXTURE else 0
    mu_ptr += sample * sample_stride
    log_var_ptr += sample * sample_stride
    ks = tl.arange(0, COMPONENTS)
    log_probs = tl.zeros([COMPONENTS], tl.float32)
    for start in range(0, dims, BLOCK):
        ds = start + tl.arange(0, BLOCK)
        inside = ds < dims
        own = component * dims + ds
        own_mu = tl.load(mu_ptr + own, mask=inside, other=0.0)
        own_log_var = tl.load(log_var_ptr + own, mask=inside, other=0.0)
        noise = tl.load(noise_ptr + sample * dims + ds, mask=inside, other=0.0)
        z = own_mu + tl.exp(0.5 * own_log_var) * noise
        tl.store(z_ptr + sample * dims + ds, z, mask=inside)
        for k in range(components):
            mu = tl.load(mu_ptr + k * dims + ds, mask=inside, other=0.0)
            log_var = tl.load(log_var_ptr + k * dims + ds, mask=inside, other=0.0)
            distance = tl.where(inside, (z - mu) * tl.exp(-0.5 * log_var), 0.0)
            log_prob = -0.5 * tl.sum(distance * distance + log_var)
            log_probs += tl.where(ks == k, log_prob, 0.0)
    log_probs -= dims * half_log_2pi
    if MIXTURE:
        weights = tl.load(weights_ptr + ks, mask=ks < components, other=1.0)
        log_probs = tl.where(ks < components, log_probs + tl.log(weights), float("-inf"))
        # Infinities are not subtracted from one another.
        largest = tl.max(log_probs)
        base = tl.where(tl.abs(largest) == float("inf"), 0.0, largest)
        tl.store(log_q_z_ptr + sample, base + tl.log(tl.sum(tl.exp(log_probs - base))))
    else:
        tl.store(log_q_z_ptr + sample, tl.sum(log_probs))


def mixture_forward(
    mu: torch.Tensor,
    log_var: torch.Tensor,
    noise: torch.Tensor,
    weights: torch.Tensor | None = None,
    component: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Launch the kernel on the device of `mu`; without `weights` the first component of each sample counts."""
    samples, dims = mu.shape[0], mu.shape[-1]
    components = mu.shape[1] if weights is not None else 1
    z, log_q_z = mu.new_empty(samples, dims), mu.new_empty(samples)
    if samples == 0:
        return z, log_q_z
    block = min(MAX_BLOCK, triton.next_power_of_2(max(dims, 1)))
    with torch.cuda.device_of(mu):
        mixture_kernel[(samples,)](
            mu,
            log_var,
            mu if weights is None else weights,
            mu if component is None else component,
            noise,
            z,
            log_q_z,
            components,
            dims,
            mu.stride(0),
            0.5 * math.log(2 * math.pi),
            MIXTURE=weights is not None,
            COMPONENTS=triton.next_power_of_2(components),
            BLOCK=block,
            num_warps=min(4, max(1, block // 128)),
        )
    return z, log_q_z


class ModelNew(nn.Module):
    """The reference's parameters; torch draws and one kernel does the rest."""

    def __init__(self, latent_dim: int, num_components: int = 1) -> None:
        super().__init__()
        self.latent_dim = latent_dim
        self.num_components = num_components
        if num_components > 1:
            self.logits = nn.Parameter(torch.zeros(num_components))

    def forward(self, mu: torch.Tensor, log_var: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return z [batch, latent_dim] and log_q_z [batch]."""
        if self.num_components > 1 and mu.dim() == 3:
            weights = torch.softmax(self.logits, dim=0)
            component = torch.multinomial(weights.expand(mu.shape[0], -1), 1).squeeze(-1)
            noise = torch.randn(mu.shape[0], mu.shape[2], device=mu.device, dtype=mu.dtype)
            return mixture_forward(mu.contiguous(), log_var.contiguous(), noise, weights, component)
        noise = torch.randn_like(mu[:, 0] if mu.dim() == 3 else mu).contiguous()
        return mixture_forward(mu.contiguous(), log_var.contiguous(), noise)
