"""Say what the test runs came to: what was skipped and why, then one closing line.

Reports are given in the order of the runs; a test that ran twice counts as it ended the second time.
"""

import sys
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

outcomes: dict[tuple[str, str], str] = {}
skips: Counter[str] = Counter()
for path in filter(Path.exists, map(Path, sys.argv[1:])):
    for case in ET.parse(path).iter("testcase"):
        name = (case.get("classname", ""), case.get("name", ""))
        found = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
        outcomes[name] = "passed" if found is None else "skipped" if found.tag == "skipped" else "failed"
        if found is not None and found.tag == "skipped":
            skips[found.get("message", "")] += 1
counts = Counter(outcomes.values())
for reason, number in sorted(skips.items()):
    print(f"skipped {number}: {reason}")
print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
sys.exit(counts["failed"] > 0 or counts["passed"] == 0)
