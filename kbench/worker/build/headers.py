"""Which headers does a source really need in place of torch's all-in-one ones?

`torch/extension.h` takes a minute in nvcc; the functions that a source names take seconds. The light
folder made here stands first in the include path. It holds stand-ins for the all-in-one headers, and
torch's own headers of the functions in use with their heaviest includes left out. All text that
declares something comes from the torch that is installed, so a name means what it meant before, and
a name that is missing is a compiler error, upon which the build falls back to the full headers.

What must never happen is that a call compiles in both ways and means two things. So a function that
is named comes with all of its overloads, and one that torch declares twice, as `torch::empty` and as
`at::empty`, comes twice. Type casters and C library overloads are those of the full headers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

# Everything here is included by the stand-ins, once; the name must not be one of torch's.
_LIGHT = "kbench_light.h"
_API = "torch/csrc/api/include"
_FACTORIES = "torch/csrc/autograd/generated/variable_factories.h"

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|(\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')", re.DOTALL)
# What may be a free function: a name that is called, given template arguments or qualified; of no object and not of `std`.
_FUNCTION = re.compile(r"(?<![\w.])(?<!->)(?<!std::)([A-Za-z_]\w*)(?=\s*[(<])|(?<!std)::\s*([A-Za-z_]\w*)")
# Names that are asked for with what stands beside them, too.
_MARKED = re.compile(r"(?:\.|->)\s*index(?:_put_)?\b|\bnative\s*::")
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+\w+\(([^)\n]*)\)((?:\\\n|[^\n])*)", re.MULTILINE)
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"]+)[>\"].*$", re.MULTILINE)

# Parts of the C++ frontend that lean on thousands of functions: nothing lighter than the full headers.
_FRONTEND = re.compile(r"\b(?:nn|optim|jit|data|serialize|fft|linalg|special|nested|sparse|xpu|mps)\s*::")
_FRONTEND_NAMES = frozenset({"pickle_save", "pickle_load", "OrderedDict", "ExpandingArray", "CustomClassHolder"})

# Present in every light build: what has no name of its own in a source (operators, `<<`, C overloads
# of `abs` that would otherwise silently be the one for int), and macros.
_ALWAYS = (
    "cmath",
    "complex",
    "cstdlib",
    "math.h",
    "stdlib.h",
    "ATen/core/Tensor.h",
    "ATen/Dispatch.h",
    "ATen/TensorOperators.h",
    "ATen/core/Formatting.h",
    "c10/core/DeviceGuard.h",
    "c10/util/Exception.h",
    "c10/util/irange.h",
)

# Reached from headers of `_ALWAYS` and `_BY_NAME`, so the trimmed form must stand there too.
_INNER_FUNCTIONS = ("alias", "empty", "empty_like", "from_blob", "scalar_tensor", "tensor", "view", "view_copy", "zeros")

# Includes that generated headers carry along for other users of theirs, with the name in the rest of
# the text that shows that this one does need it.
_HEAVY = {
    "ATen/Context.h": "globalContext",
    "ATen/DeviceGuard.h": "ITensorList",
    "ATen/TensorUtils.h": "TensorArg",
    "ATen/TracerMode.h": "tracer",
    "ATen/core/Generator.h": "Generator",
    "ATen/core/Reduction.h": "Reduction",
}
_TRIMMED = ("ATen/cuda/CUDAContext.h",)

# For nvcc, torch's complex numbers convert to and from thrust's, whose header brings a fourth of all text. All of it
# stands in templates: with the names declared only, whoever does use one gets an error and the full headers.
_COMPLEX = ("torch/headeronly/util/complex.h", "c10/util/complex.h")
_USES_OF_THRUST = ("c10/util/complex_math.h", "c10/util/complex_utils.h")
_THRUST = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<thrust/complex\.h>[ \t]*$", re.MULTILINE)
_THRUST_FUNCTION = re.compile(r"\bthrust::(\w+)\(")
_NAMES_COMPLEX = re.compile(r"complex|\b(?:thrust|cub|cccl|cutlass|cute)\b|cuda::std|cuda/std", re.IGNORECASE)
# The part of the light folder that nvcc alone looks into.
NVCC_FOLDER = "for_nvcc"

# What the full headers also offer, by the names that ask for it; `.index` is one of an object's.
_BY_NAME: Mapping[str, str] = {
    "LOG VLOG CHECK CHECK_EQ CHECK_NE CHECK_LT CHECK_LE CHECK_GT CHECK_GE DCHECK CHECK_NOTNULL": "c10/util/Logging.h",
    "iostream cout cerr clog cin endl istream ostream": "iostream",
    "bitset": "bitset",
    "chrono": "chrono",
    "condition_variable": "condition_variable",
    "forward_list": "forward_list",
    "setprecision setw setfill": "iomanip",
    "list": "list",
    "locale": "locale",
    "map multimap": "map",
    "queue priority_queue": "queue",
    "set multiset": "set",
    "stack": "stack",
    "thread this_thread": "thread",
    "type_index": "typeindex",
    "unordered_set unordered_multiset": "unordered_set",
    "valarray": "valarray",
    "globalContext Context": "ATen/Context.h",
    "device_of ITensorList IListRef": "ATen/DeviceGuard.h",
    "getDefaultCPUGenerator CPUGeneratorImpl": "ATen/CPUGeneratorImpl.h",
    "DimVector": "ATen/DimVector.h",
    "Generator": "ATen/core/Generator.h",
    "Reduction": "ATen/core/Reduction.h",
    "Slice Ellipsis TensorIndex indexing .index .index_put_": "ATen/TensorIndexing.h",
    "TensorGeometry": "ATen/TensorGeometry.h",
    "TensorIterator TensorIteratorConfig TensorIteratorBase": "ATen/TensorIterator.h",
    "TensorArg checkSize checkDim checkAllSame checkAllSameGPU checkAllSameType checkContiguous CheckedFrom": ("ATen/TensorUtils.h"),
    "expand_size expand_inplace expand_outplace infer_size sum_to": "ATen/ExpandUtils.h",
    "scalar_to_tensor wrapped_scalar_tensor": "ATen/ScalarOps.h",
    "parallel_for parallel_reduce get_num_threads set_num_threads get_thread_num in_parallel_region": ("ATen/Parallel.h"),
    "NoGradGuard AutoGradMode GradMode": "ATen/core/grad_mode.h",
    "InferenceMode": "c10/core/InferenceMode.h",
    "AutoDispatchBelowAutograd AutoDispatchBelowADInplaceOrView AutoNonVariableTypeMode": ("ATen/core/LegacyTypeDispatch.h"),
    "IValue": "ATen/core/ivalue.h",
    "Dict": "ATen/core/Dict.h",
    "List": "ATen/core/List.h",
    "RECORD_FUNCTION RecordFunction": "ATen/record_function.h",
    "TORCH_LIBRARY TORCH_LIBRARY_FRAGMENT TORCH_LIBRARY_IMPL Library": "torch/library.h",
    # custom_function.h, too, calls what is in this one and does not include it.
    "accelerator getAccelerator autograd make_variable Variable AutogradContext variable_list": "ATen/DeviceAccelerator.h",
    "autograd make_variable Variable AutogradContext variable_list": "torch/csrc/autograd/custom_function.h",
}

# A source that names none of these needs no Python headers, though `torch/extension.h` has them.
_PYTHON = re.compile(r"\b(?:py|pybind11|PYBIND11_\w+|Py[A-Z]\w*|THP\w*|TORCH_EXTENSION_NAME|wrap_pybind_function\w*)\b")
_PYTHON_HEADERS = (
    "torch/csrc/python_headers.h",
    "torch/csrc/utils/pybind.h",
    "torch/csrc/Exceptions.h",
    "torch/csrc/Device.h",
    "torch/csrc/Dtype.h",
    "torch/csrc/DynamicTypes.h",
)
# torch's own conversions of numbers and tuples, which lean on the JIT and hold no type casters.
_PYTHON_UTILITIES = re.compile(r"\bTHPUtils_\w+")
_PYTHON_UTILITY_HEADERS = (
    "ATen/DeviceAccelerator.h",
    "torch/csrc/utils/python_numbers.h",
    "torch/csrc/utils/python_tuples.h",
)

# torch's own make_variable for a tensor that nothing else holds yet, without the 300,000 lines of
# headers round it. An AutogradMeta made by `set_requires_grad` equals one made by its constructor.
_MAKE_VARIABLE = """
namespace kbench_light {
inline at::Tensor make_variable(at::Tensor data, bool requires_grad) {
  if (!data.defined()) return at::Tensor();
  auto impl = data.use_count() == 1 && data.getIntrusivePtr()->unique_version()
      ? c10::intrusive_ptr<at::TensorImpl>::reclaim(data.unsafeReleaseTensorImpl())
      : data.getIntrusivePtr()->shallow_copy_and_detach(0, true);
  impl->set_allow_tensor_metadata_change(true);
  impl->set_autograd_meta(nullptr);
  if (requires_grad) impl->set_requires_grad(true);
  return at::Tensor(std::move(impl));
}
}
"""


def light_headers(texts: Iterable[str], include: Path) -> dict[str, str] | None:
    """Choose the headers for the sources of one build: path in the light folder → text.

    `texts` are all sources and headers of the user's, `include` is torch's include folder. None
    where nothing is gained, or where this torch does not look as expected.
    """
    text = _COMMENT.sub(lambda found: found[1] or " ", "\n".join(texts))
    names = frozenset(_IDENTIFIER.findall(text)) | frozenset(re.sub(r"\s", "", name).replace("->", ".") for name in _MARKED.findall(text))
    if _FRONTEND.search(text) or names & _FRONTEND_NAMES:
        return None
    try:
        functions = _functions(_called(text), include)
        chosen = _stand_ins(names, functions, include, python=_python_headers(text)) | _trimmed(functions, include)
        return chosen if _NAMES_COMPLEX.search(text) else chosen | _without_thrust(include)
    except (OSError, UnicodeDecodeError):
        return None


def _called(text: str) -> frozenset[str]:
    """The names that may be those of free functions; all there are where a macro calls or makes up what it is given."""
    for parameters, body in _MACRO.findall(text):
        called = r"\b(?:" + "|".join(_IDENTIFIER.findall(parameters)) + r")[ \t]*\("
        if "##" in body or (parameters.strip(" .") and re.search(called, body)):
            return frozenset(_IDENTIFIER.findall(text))
    return frozenset(name for pair in _FUNCTION.findall(text) for name in pair if name)


def prefix_header() -> str:
    """What every binding code includes, whatever it names: the text of a header to precompile."""
    return f"#define AT_PER_OPERATOR_HEADERS\n{_included(_PYTHON_HEADERS + _ALWAYS)}"


def _python_headers(text: str) -> tuple[str, ...]:
    if _PYTHON_UTILITIES.search(text):
        return _PYTHON_HEADERS + _PYTHON_UTILITY_HEADERS
    return _PYTHON_HEADERS if _PYTHON.search(text) else ()


def _included(headers: Iterable[str]) -> str:
    return "".join(f"#include <{header}>\n" for header in headers)


def _stand_ins(names: frozenset[str], functions: Sequence[str], include: Path, *, python: tuple[str, ...]) -> dict[str, str]:
    wanted = [*_ALWAYS, *(f"ATen/ops/{function}.h" for function in functions)]
    wanted += [header for keys, header in _BY_NAME.items() if names & set(keys.split())]
    if "native::" in names:
        wanted += [f"ATen/ops/{function}_native.h" for function in functions]
    factories, factory_headers = _factories(functions, include)
    present = [header for header in [*wanted, *factory_headers] if "/" not in header or _exists(include, header)]
    types = f"#include <{_LIGHT}>\n{_without_includes((include / _API / 'torch/types.h').read_text())}"
    everything = "#pragma once\n#include <torch/types.h>\n"
    extension = everything + ("#include <torch/python.h>\n" if python else "")
    return {
        _LIGHT: f"#pragma once\n#ifndef AT_PER_OPERATOR_HEADERS\n#define AT_PER_OPERATOR_HEADERS\n#endif\n{_included(present)}",
        "ATen/ATen.h": f"#pragma once\n#include <{_LIGHT}>\n",
        "ATen/Functions.h": f"#pragma once\n#include <{_LIGHT}>\n",
        "ATen/NativeFunctions.h": f"#pragma once\n#include <{_LIGHT}>\n",
        "torch/types.h": types + factories,
        "torch/all.h": everything,
        "torch/torch.h": everything,
        "torch/python.h": everything + _included(python or _PYTHON_HEADERS),
        "torch/extension.h": extension,
    }


def _functions(names: frozenset[str], include: Path) -> list[str]:
    """The functions of torch among `names`: `add_out` is declared with `add`, `empty_symint` with `empty`."""
    stems = names | {re.sub(r"_(?:out|outf|symint|symint_out|symint_outf)$", "", name) for name in names}
    return sorted(name for name in stems if (include / "ATen/ops" / f"{name}.h").is_file())


def _trimmed(functions: Sequence[str], include: Path) -> dict[str, str]:
    headers = [*(f"ATen/ops/{function}.h" for function in sorted({*functions, *_INNER_FUNCTIONS})), *_TRIMMED]
    return {header: _trim((include / header).read_text()) for header in headers if _exists(include, header)}


def _without_thrust(include: Path) -> dict[str, str]:
    texts = {name: (include / name).read_text() for name in _COMPLEX + _USES_OF_THRUST if (include / name).is_file()}
    functions = {name for text in texts.values() for name in _THRUST_FUNCTION.findall(text)} - {"complex"}
    declared = "".join(f" template <class... A> void {name}(A&&...) = delete;" for name in sorted(functions))
    stand_in = f"namespace thrust {{ template <class T> struct complex;{declared} }}"
    return {f"{NVCC_FOLDER}/{name}": _THRUST.sub(stand_in, texts[name]) for name in _COMPLEX if name in texts and _THRUST.search(texts[name])}


def _trim(text: str) -> str:
    """Leave out the heavy includes that the rest of a header does not use."""
    rest = _INCLUDE.sub("", text)

    def keep(include: re.Match[str]) -> str:
        sign = _HEAVY.get(include.group(1))
        return include.group() if sign is None or sign in rest else ""

    return _INCLUDE.sub(keep, text)


def _without_includes(text: str) -> str:
    return _INCLUDE.sub(lambda found: found.group() if found.group(1) in {"optional"} else "", text)


def _exists(include: Path, header: str) -> bool:
    return any((root / header).is_file() for root in (include, include / _API)) or header.endswith("/ATen.h")


def _factories(functions: Sequence[str], include: Path) -> tuple[str, list[str]]:
    """The named functions that torch declares in `torch` too, where they hide those of `at`."""
    text = (include / _FACTORIES).read_text()
    body = text[text.index("namespace torch {") :]
    blocks = re.findall(r"^inline at::Tensor (\w+)\((.*?)^}\n", body, re.MULTILINE | re.DOTALL)
    named = [(name, rest) for name, rest in blocks if name.removesuffix("_symint") in functions]
    if not named:
        return "", []
    headers = ["ATen/core/LegacyTypeDispatch.h", "ATen/TracerMode.h"]
    if any(name == "tensor" for name, _ in named):
        headers.append(f"{_API}/torch/detail/TensorDataContainer.h")
    inline = "".join(f"inline at::Tensor {name}({rest}}}\n".replace("autograd::make_variable(", "::kbench_light::make_variable(") for name, rest in named)
    deleter = "using Deleter = std::function<void(void*)>;\nusing at::MemoryFormat;\n"
    return f"{_MAKE_VARIABLE}namespace torch {{\n{deleter}{inline}}}\n", headers
