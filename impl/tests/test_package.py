"""What the package is imported with."""

import subprocess
import sys


def test_the_pool_and_its_tables_need_nothing_but_torch() -> None:
    """So the benchmark takes them into an engine's environment, where kvspec is not installed."""
    code = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(['kvspec', 'msgspec', 'safetensors', 'xxhash']))\n"
        "import kvspec_torch\n"
        "print(sorted(kvspec_torch.__all__))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "BlockTables" in done.stdout
