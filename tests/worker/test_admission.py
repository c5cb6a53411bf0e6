"""What a task may give: what comes out of it as it was, what is put right, and what is refused, where."""

from __future__ import annotations

import types
import warnings
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from kbench.records import Case
from kbench.worker import tensors
from kbench.worker.admission import Inadmissible, admit, pickled
from kbench.worker.candidate import load_module
from kbench.worker.evidence import Tolerance
from kbench.worker.reference import CaseReference, Reference, ReferenceFault

CPU = torch.device("cpu")
Point = namedtuple("Point", "x y")  # noqa: PYI024 - as tasks write it


class WithMethod(NamedTuple):
    x: torch.Tensor

    def doubled(self) -> torch.Tensor:
        return self.x * 2


@dataclass
class Batch:
    x: torch.Tensor


def loop() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


def of_prototype(make: Callable[[], torch.Tensor]) -> torch.Tensor:
    """What torch warns of when it is made."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (torch.eye(2).to_sparse(), "layout torch.sparse_coo at input"),
        (of_prototype(lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])), "a nested tensor at input"),
        (of_prototype(lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)), "a quantized tensor at input"),
        (torch.ones(2, device="meta"), r"without data \(device meta\) at input"),
        ([torch.ones(2).as_subclass(type("Lazy", (torch.Tensor,), {}))], r"a Lazy \(a subclass of torch.Tensor\) at input\[0\]"),
        ({"f": lambda x: x}, r"a function at input\[f\], which cannot travel"),
        (Batch(torch.ones(2)), "`Batch` at input, which only the reference has"),
        (WithMethod(torch.ones(2)), "a WithMethod at input"),
        (defaultdict(list), "a defaultdict at input"),
        (types.MappingProxyType({"a": torch.ones(2)}), "a mappingproxy at input"),
        ({None: torch.ones(2)}, "a key None at input"),
        ({(0, 1): torch.ones(2)}, "only str, int and bool can be keys"),
        (loop(), "nested more than 64 deep"),
    ],
)
def test_what_cannot_travel_is_refused_with_its_place(value: Any, words: str) -> None:
    with pytest.raises(Inadmissible, match=words):
        admit(value, "input", CPU)


def test_plain_values_pass_and_keep_their_form() -> None:
    value = [1, 2.5, None, True, "x", (torch.ones(2), [3]), {True: 1, "k": 2, 3: OrderedDict(a=1)}, torch.float16, slice(1, 2)]

    found = admit(value, "input", CPU)

    assert found[:5] == value[:5]
    assert torch.equal(found[5][0], torch.ones(2))
    assert found[6:] == value[6:]


@pytest.mark.parametrize("view", [torch.conj, lambda z: z.conj().imag, lambda z: z.conj().T])
def test_a_view_that_is_only_marked_as_conjugate_gets_the_bits_that_it_shows(view: Any) -> None:
    given = view(torch.randn(3, 4, dtype=torch.complex64))

    found = admit(given, "input", CPU)

    assert torch.equal(found, given)
    assert not found.is_conj()
    assert not found.is_neg()


def test_a_namedtuple_arrives_with_its_names() -> None:
    given = admit([Point(torch.ones(2), 3)], "input", CPU)

    spec = tensors.describe(given, trusted=True)
    found = tensors.rebuild(spec, lambda leaf: torch.ones(leaf["shape"]))

    assert isinstance(given[0], Point)
    assert torch.equal(found[0].x, torch.ones(2))
    assert found[0].y == 3
    assert isinstance(tensors.clone(given)[0], Point)


def test_a_class_of_a_file_beside_the_reference_is_refused_and_one_of_a_package_is_not(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("class Config:\n    width = 3\n")
    module = load_module(tmp_path / "beside.py", "a_module_beside_the_reference")

    with pytest.raises(Inadmissible, match="`Config` in its list, which only the reference has"):
        pickled([module.Config()], "in its list")
    assert pickled([torch.float16, types.SimpleNamespace(width=3)], "in its list")["k"] == "pickle"


def task(folder: Path, forward: str, get_inputs: str, init: str = "pass") -> CaseReference:
    path = folder / "task.py"
    path.write_text(
        "import sys\nimport torch\nclass Model(torch.nn.Module):\n"
        f"    def __init__(self):\n        super().__init__()\n        {init}\n"
        f"    def forward(self, x):\n        return {forward}\n"
        f"def get_inputs():\n    return {get_inputs}\ndef get_init_inputs():\n    return []\n"
    )
    reference = Reference(path, CPU, root_seed=5, label="task")
    found = CaseReference(reference, Case(), trials=3, tolerance=Tolerance(by_dtype={}, default=(1e-4, 1e-4)))
    list(found.variants())
    return found


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"])
def test_float8_may_come_and_go_and_be_a_weight(tmp_path: Path, dtype: str) -> None:
    init = f"self.register_buffer('scale', torch.full((8,), 2.0).to(torch.{dtype}))"
    case = task(tmp_path, f"((x.float() * self.scale.float()).to(torch.{dtype}), x.float() + 1)", f"[torch.rand(8, 8).to(torch.{dtype})]", init)

    assert {trial.variant for trial in case.variants()} >= {"one_element"}
    assert all(case.is_sound(trial) for trial in case.variants() if trial.variant == "one_element")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("forward", "words"),
    [
        ("sys.exit(3)", "Model.forward raised SystemExit: 3"),
        ("x.to_sparse()", "returned a tensor of layout torch.sparse_coo at output, which cannot be compared"),
        ("[torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)]", r"a quantized tensor at output\[0\]"),
        ("torch.nested.nested_tensor([x, x[:2]])", "a nested tensor at output"),
        ("x.to('meta')", "without data"),
        ("{None: x}", "a dict with a key of type NoneType"),
        ("__import__('types').MappingProxyType({'a': x})", "mappingproxy at output"),
    ],
)
def test_a_result_that_cannot_be_compared_is_the_task_s_fault(tmp_path: Path, forward: str, words: str) -> None:
    with pytest.raises(ReferenceFault, match=words):
        task(tmp_path, forward, "[torch.randn(4, 4)]")


def test_a_weight_that_cannot_be_handed_over_is_the_task_s_fault(tmp_path: Path) -> None:
    with pytest.raises(ReferenceFault, match=r"layout torch.sparse_coo for its `graph`"):
        task(tmp_path, "self.graph @ x", "[torch.randn(4, 4)]", "self.register_buffer('graph', torch.eye(4).to_sparse())")


def test_bools_may_be_keys(tmp_path: Path) -> None:
    case = task(tmp_path, "{True: x + 1, False: x * 2}", "[torch.randn(4, 4)]")

    assert [leaf.path for leaf in next(case.trials()).expected] == ["output[False]", "output[True]"]
