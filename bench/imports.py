"""What importing costs: CPU time and memory of `import nucleic_core`, and what a backend plugin adds.

    uv run python bench/imports.py [--check]

Each import runs in a fresh interpreter, the best of several. The bars (200 ms and 35 MB for the core, 20 ms for a plugin)
were set on a machine where `import trio` takes 127 ms of CPU; on a slower one they are
scaled by what it takes there. With --check, passing them is a failure.
"""

import argparse
import os
import subprocess
import sys

ROUNDS = 9
TRIO_MS, CORE_MS, PLUGIN_MS, CORE_MB = 127.0, 200.0, 20.0, 35.0

PROBE = """
import resource, sys, time
began = time.process_time()
for name in sys.argv[1:]:
    __import__(name)
print((time.process_time() - began) * 1000, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def cost(*modules: str) -> tuple[float, float]:
    """Milliseconds of CPU and megabytes of peak memory, the least of several."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    runs = []
    for _ in range(ROUNDS):  # the first one compiles
        argv = [sys.executable, "-c", PROBE, *modules]
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
        runs.append([float(figure) for figure in done.stdout.split()])
    return min(ms for ms, _ in runs), min(mb for _, mb in runs)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--check", action="store_true")
    check = arguments.parse_args().check
    trio_ms, _ = cost("trio")
    scale = max(1.0, trio_ms / TRIO_MS)
    core_ms, core_mb = cost("nucleic_core")
    all_ms, all_mb = cost("nucleic_core", "nucleic_claude.plugin")
    rows = (
        ("trio", trio_ms, None),
        ("nucleic_core", core_ms, CORE_MS * scale),
        ("nucleic_claude adds", all_ms - core_ms, PLUGIN_MS * scale),
    )
    for name, ms, bar in rows:
        print(f"{name:20} {ms:6.1f} ms CPU" + (f", bar here {bar:.0f} ms" if bar is not None else ""))
    print(f"{'memory':20} {core_mb:6.1f} MB, bar {CORE_MB:.0f} MB; the plugin adds {all_mb - core_mb:.1f} MB")
    over = [name for name, ms, bar in rows if bar is not None and ms > bar]
    if core_mb > CORE_MB:
        over.append("memory")
    if check and over:
        sys.exit(f"over the bar: {', '.join(over)}")


if __name__ == "__main__":
    main()
