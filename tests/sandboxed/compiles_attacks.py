"""Has the compiler reach what it may not reach itself: compilers read, write and run what their flags say."""

import os

import torch
from torch.utils.cpp_extension import load_inline

LAND = {}
DEVICES = ("cpu",)
ROOT = LAND.get("root", "")


def build(name, source="", cflags=(), ldflags=()):
    load_inline(
        name=name,
        cpp_sources='extern "C" int reached() { return 1; }\n' + source,
        extra_cflags=list(cflags),
        extra_ldflags=list(ldflags),
        no_implicit_headers=True,
        is_python_module=False,
    )


ATTACKS = {
    "reads": {"source": f'__asm__(".pushsection .data; .incbin \\"{ROOT}/project/references/t.py\\"; .popsection");'},
    "includes": {"source": f'const char* text = \n#include "{ROOT}/home/secret.h"\n;'},
    "writes_by_linker": {"ldflags": [f"-Wl,-Map={ROOT}/project/results/reached"]},
    "writes_by_compiler": {"cflags": ["-fdump-tree-original=" + f"{ROOT}/project/results/reached"]},
    "runs": {"cflags": ["-wrapper", f"touch,{ROOT}/project/results/reached"]},
}


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        build("honest")
        for name, arguments in ATTACKS.items():
            try:
                build(name, **arguments)
            except Exception:
                continue
            if name != "writes_by_compiler" or os.path.exists(f"{ROOT}/project/results/reached"):
                print("REACHED", name, flush=True)
        print(f"TRIED {len(ATTACKS)}", flush=True)

    def forward(self, x):
        return x * 2 + 1
