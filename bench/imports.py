"""What importing costs: CPU time and memory of `import nucleic_core`, and what a backend plugin adds.

    uv run python bench/imports.py [--check]

Each import runs in a fresh interpreter, the best of several; with --check, fails above the bars.
"""

import argparse
import statistics
import subprocess
import sys

ROUNDS = 9
BARS = {"nucleic_core": (200.0, 35.0), "nucleic_claude": (20.0, None)}

PROBE = """
import resource, sys, time
began = time.process_time()
for name in sys.argv[1:]:
    __import__(name)
print((time.process_time() - began) * 1000, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def cost(*modules: str) -> tuple[float, float]:
    """Milliseconds of CPU and megabytes of peak memory, medians."""
    runs = []
    for _ in range(ROUNDS):
        done = subprocess.run([sys.executable, "-c", PROBE, *modules], capture_output=True, text=True, check=True)
        runs.append([float(figure) for figure in done.stdout.split()])
    return statistics.median(ms for ms, _ in runs), statistics.median(mb for _, mb in runs)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--check", action="store_true")
    check = arguments.parse_args().check
    over = []
    for name, modules in (
        ("nothing", ()),
        ("trio", ("trio",)),
        ("nucleic_core", ("nucleic_core",)),
    ):
        ms, mb = cost(*modules)
        print(f"{name:16} {ms:6.1f} ms CPU {mb:6.1f} MB")
        if name in BARS and (ms > BARS[name][0] or mb > BARS[name][1]):
            over.append(name)
    core_ms, core_mb = cost("nucleic_core")
    ms, mb = cost("nucleic_core", "nucleic_claude.plugin")
    print(f"{'nucleic_claude':16} {ms - core_ms:+6.1f} ms CPU {mb - core_mb:+6.1f} MB")
    if ms - core_ms > BARS["nucleic_claude"][0]:
        over.append("nucleic_claude")
    if check and over:
        sys.exit(f"over the bar: {', '.join(over)}")


if __name__ == "__main__":
    main()
