"""Seeds: how they are derived, set on every generator, and read back."""

from __future__ import annotations

import hashlib
import random
import sys

import torch

# Generators besides torch's own, by name: that of a device which is not there.
_added: dict[str, torch.Generator] = {}


def add_generator(name: str, generator: torch.Generator) -> None:
    """Have a generator seeded and read back with torch's own."""
    _added[name] = generator


def derive_seed(root: int, *labels: object) -> int:
    """Derive a seed of 63 bits from the run's seed and labels.

    It goes through SHA-256, so that who knows one seed cannot tell another.
    """
    text = "/".join([str(root), *map(str, labels)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def seed_everything(seed: int) -> None:
    """Seed torch's CPU and CUDA generators, `random`, and numpy where it is loaded."""
    # torch.manual_seed asks how many devices there are and, without a GPU, keeps a stack trace of every call
    # for the day when there is one; these are the generators themselves.
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        for generator in torch.cuda.default_generators:
            generator.manual_seed(seed)
    for generator in _added.values():
        generator.manual_seed(seed)
    random.seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed % 2**32)


def generator_state(device: torch.device) -> dict[str, str]:
    """A digest of the state of the generators that a forward on `device` may draw from."""
    states = {"cpu": torch.default_generator.get_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.default_generators[device.index or 0].get_state()
    states |= {name: generator.get_state() for name, generator in _added.items()}
    return {name: hashlib.sha256(state.numpy().tobytes()).hexdigest()[:16] for name, state in states.items()}
