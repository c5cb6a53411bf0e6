"""What runs under compute-sanitizer: an interpreter that confines itself, then loads a candidate and calls it.

It judges nothing. The inputs come as bytes that the judge wrote, each in an allocation of exactly its size.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

# Imports kbench from its own folder: the one above may hold references, and no confined process looks into it.
_PROGRAM = """
import importlib.util, sys
package, request = sys.argv[1:]
spec = importlib.util.spec_from_file_location("kbench", package + "/__init__.py", submodule_search_locations=[package])
sys.modules["kbench"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["kbench"])
from kbench.worker import sanitized
sanitized.{name}(request)
"""
# The last line that a run prints which came to its end.
DONE = "kbench: every call was made"


def program(name: str) -> str:
    """The text of a program that calls one of this module's functions; its arguments are kbench's folder and the request."""
    return _PROGRAM.format(name=name)


def enter(path: str) -> NoReturn:
    """Give up all that a candidate may not do, and become the interpreter that loads it.

    The tool's thread is here already; it ends as this process becomes another program.
    """
    from kbench.worker import confine  # noqa: PLC0415 - torch is not to be imported twice

    request = json.loads(Path(path).read_text())
    if request["policy"]:
        confine.confine(confine.Policy.from_json(request["policy"]), before_exec=True)
    os.execv(sys.executable, [sys.executable, "-P", "-c", program("drive"), request["package"], path])  # noqa: S606 - our own interpreter


def drive(path: str) -> None:
    """Load the candidate, with line information in what it builds, and make every call of the request."""
    import torch  # noqa: PLC0415 - see above
    from torch.utils import cpp_extension  # noqa: PLC0415

    from kbench.protocol import digest  # noqa: PLC0415
    from kbench.worker import tensors  # noqa: PLC0415
    from kbench.worker.build import intercept  # noqa: PLC0415
    from kbench.worker.build.request import BuildRequest, BuildResult  # noqa: PLC0415
    from kbench.worker.candidate import load_module  # noqa: PLC0415
    from kbench.worker.seeding import seed_everything  # noqa: PLC0415

    request = json.loads(Path(path).read_text())

    def find(wanted: BuildRequest) -> BuildResult:
        built = request["builds"].get(digest(wanted.to_json()))
        return BuildResult.from_json(built) if built else BuildResult(ok=False, failure="it asks for another build than before")

    device = torch.device(request["device"])
    if device.type == "cuda":
        torch.cuda.init()
    with_lines(cpp_extension)
    intercept.install(find)
    factory = getattr(load_module(Path(request["path"]), request["module"]), request["model"])

    def placed(spec: dict[str, Any], content: torch.Tensor) -> torch.Tensor:
        lent = tensors.view_of(content, spec)
        return tensors.span(lent).to(device, copy=True).as_strided(lent.shape, lent.stride())

    for case in request["cases"]:
        seed_everything(case["seed"])
        model = factory(*tensors.rebuild(case["init"], lambda spec: torch.empty(spec["shape"])))
        if isinstance(model, torch.nn.Module):
            model.to(device)
        for call in case["calls"]:
            content = torch.frombuffer(bytearray(Path(call["file"]).read_bytes()), dtype=torch.uint8)
            args = tensors.rebuild(call["args"], lambda spec, content=content: placed(spec, content))  # type: ignore[misc]
            seed_everything(call["seed"])
            with torch.no_grad():
                model(*args)
            if device.type == "cuda":
                torch.cuda.synchronize()
    print(DONE, flush=True)  # noqa: T201 - how the parent knows


def with_lines(cpp_extension: Any) -> None:
    """Have nvcc note which line an instruction comes from; that is another build, of like code."""
    cpp_extension.COMMON_NVCC_FLAGS.append("-lineinfo")
