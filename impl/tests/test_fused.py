"""The fused step: in Triton's interpreter, and through Triton's compiler. Each needs a process of its own.

Whether Triton interprets is settled when it is imported, and another test may have imported it.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from kvspec_torch import BlockTables, Misuse, PagePool

HERE = Path(__file__).parent
SCRIPT = HERE.parent / "on_a_gpu.py"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="triton has wheels for Linux only")


def run(*command: object, interpret: bool, **more: str) -> str:
    """What a Python process prints; it must succeed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "TRITON"))}
    environment = kept | {"PYTHONPATH": str(HERE), **more} | ({"TRITON_INTERPRET": "1"} if interpret else {})
    arguments = [sys.executable, *map(str, command)]
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_is_the_plain_path_to_the_bit() -> None:
    printed = run("-m", "pytest", HERE / "fused_cases.py", "-p", "no:cacheprovider", interpret=True)
    assert " passed" in printed
    assert "skipped" not in printed


COMPILE = """
import json, sys
import triton
from kvspec_torch.device import fused
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

INT64 = "rows tokens drafts length drafted entries before numbers status first ring slots".split()
types = {name: "*i64" for name in INT64} | {name: "*i32" for name in ("mark", "state", "table")}
made = {}
for kernel, block in ((fused.decide, fused.FusedTables.judged), (fused.write, fused.FusedTables.written)):
    names = [parameter.name for parameter in kernel.params]
    ones = {name: 1 for name in names if name in ("requests", "pages", "limit", "lookahead", "size", "width")}
    for arch, constants in ((80, {}), (90, {}), (90, ones)):  # a 1 that is passed is compiled in
        constants = constants | {"BLOCK": block}
        signature = {name: "constexpr" if name in constants else types.get(name, "i32") for name in names}
        source = ASTSource(kernel, signature, constexprs=constants)
        compiled = triton.compile(source, target=GPUTarget("cuda", arch, 32))
        made[f"{kernel.__name__} {arch} {len(constants)}"] = compiled.asm["ptx"], len(compiled.asm["cubin"])
json.dump(made, sys.stdout)
"""


def test_it_compiles_for_gpus(tmp_path: Path) -> None:
    """To machine code, for two generations, without a GPU. What it does there is not known before it runs there."""
    made = json.loads(run("-c", COMPILE, interpret=False, TRITON_CACHE_DIR=str(tmp_path)))
    assert list(made) == [
        f"{name} {of}" for name, ones in (("decide", 6), ("write", 7)) for of in ("80 1", "90 1", f"90 {ones}")
    ]
    for ptx, size in made.values():
        assert size > 1000
        assert "bar.sync" in ptx  # what a step reads, it reads before it writes
    assert "max" in made["decide 90 1"][0].partition("atom")[2].partition(";")[0], "marks are set atomically"


def test_what_is_to_be_run_on_a_gpu_compares_first() -> None:
    printed = run(SCRIPT, "--device", "cpu", "--short", interpret=True)
    assert re.fullmatch(r"plain and fused are the reference's in 16 steps, which took [1-9]\d+ pages\n", printed)


def test_it_is_imported_when_it_is_asked_for() -> None:
    code = (
        "import sys; from kvspec_torch import BlockTables, PagePool; pool = PagePool(4, path='device')\n"
        "names = 'kvspec_torch.device.fused', 'triton'\n"
        "BlockTables(pool, 2, requests=1, limit=4); print([name in sys.modules for name in names])\n"
        "BlockTables(pool, 2, requests=1, limit=4, fused=True); print([name in sys.modules for name in names])\n"
    )
    assert run("-c", code, interpret=True).split("\n")[:2] == ["[False, False]", "[True, True]"]


def test_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "kvspec_torch.device.fused", raising=False)
    with pytest.raises(Misuse, match=r"^fused: triton is not installed, run pip install 'kvspec\[triton\]' or leave"):
        BlockTables(PagePool(4, path="device"), 2, requests=1, limit=4, fused=True)


def test_on_the_host_path() -> None:
    with pytest.raises(Misuse, match=r"^fused: only the device path has kernels, make the pool with path='device'$"):
        BlockTables(PagePool(4), 2, requests=1, limit=4, fused=True)
