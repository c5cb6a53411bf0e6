"""What a task may give: inputs and constructor arguments that another process can be handed as they are."""

from __future__ import annotations

import base64
import io
import pickle
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch

from kbench.worker import confine, tensors

# Subclasses that say nothing of how a tensor computes; others may be anything.
_PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
# These arrive as a plain tuple and a plain dict, which do the same.
_SEQUENCES, _MAPPINGS = (list, tuple, torch.Size), (dict, OrderedDict)
_SCALARS = (type(None), bool, int, float, str)
_KINDS = "tensors, plain values, and tuples, lists or dicts of them"
_ADVICE, RETURN_ADVICE = f"give {_KINDS}", f"return {_KINDS}"


class Inadmissible(Exception):
    """A value that cannot be handed to another process as it is; the text says which and why."""


def admit(value: Any, path: str, device: torch.device, *, depth: int = 0) -> Any:
    """The value as a candidate will get it, every tensor plain and on `device`.

    Raises:
        Inadmissible: it cannot travel, or would arrive as something else.
    """
    if isinstance(value, torch.Tensor):
        return _admit_tensor(value, path, device)
    if depth > tensors.DEEPEST:
        raise Inadmissible(f"a structure nested more than {tensors.DEEPEST} deep at {path}")
    if type(value) in _SEQUENCES or tensors.names_of(value) is not None:
        return tensors.like(value, [admit(item, f"{path}[{index}]", device, depth=depth + 1) for index, item in enumerate(value)])
    if type(value) in _MAPPINGS:
        if strange := [key for key in value if type(key) not in tensors.KEY_TYPES]:
            raise Inadmissible(f"a dict with a key {strange[0]!r:.40} at {path}: only str, int and bool can be keys")
        return {key: admit(item, f"{path}[{key}]", device, depth=depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, dict)):
        raise Inadmissible(f"a {type(value).__name__} at {path}: {_ADVICE}")
    if type(value) not in _SCALARS:
        pickled(value, f"at {path}")
    return value


def _admit_tensor(tensor: torch.Tensor, path: str, device: torch.device) -> torch.Tensor:
    obstacle = tensors.obstacle(tensor)
    if not obstacle and type(tensor) not in _PLAIN_TENSORS:
        obstacle = f"a {type(tensor).__name__} (a subclass of torch.Tensor)"
    if not obstacle and tensor.is_meta and device.type != "meta":
        obstacle = "a tensor without data (device meta)"
    if obstacle:
        raise Inadmissible(f"{obstacle} at {path}: give its parts as plain tensors, and put it together in forward")
    # What is only marked as conjugate or negative has other bits than it shows.
    return tensor.detach().to(device).resolve_conj().resolve_neg()


def pickled(value: object, where: str) -> tensors.Spec:
    """A spec that carries a value of any other kind.

    Raises:
        Inadmissible: it cannot be pickled, or needs what only the reference's process can import.
    """
    try:
        data = pickle.dumps(value)
    except Exception as error:
        raise Inadmissible(f"a {type(value).__name__} {where}, which cannot travel to a candidate ({_line(error)}): {_ADVICE}") from None
    try:
        _Elsewhere(io.BytesIO(data)).load()
    except _OnlyHere as only:
        raise Inadmissible(f"`{only}` {where}, which only the reference has: {_ADVICE}") from None
    except Exception as error:
        raise Inadmissible(f"a {type(value).__name__} {where}, which cannot be unpickled ({_line(error)}): {_ADVICE}") from None
    return {"k": "pickle", "v": base64.b64encode(data).decode()}


class _OnlyHere(Exception):
    """A class or function that no candidate can import."""


class _Elsewhere(pickle.Unpickler):
    """Unpickles what a candidate could unpickle: its classes and functions are of installed packages."""

    def find_class(self, module: str, name: str) -> Any:
        """See `pickle.Unpickler`."""
        file = getattr(sys.modules.get(module), "__file__", None)
        if module == "__main__" or (file is not None and not confine.is_installed(Path(file))):
            raise _OnlyHere(name)
        return super().find_class(module, name)


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]
