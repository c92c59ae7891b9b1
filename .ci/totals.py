"""Say what the test runs came to: what was skipped and why, then one closing line."""

import sys
import xml.etree.ElementTree as ET
from collections import Counter

counts: Counter[str] = Counter()
skips: Counter[str] = Counter()
for path in sys.argv[1:]:
    for case in ET.parse(path).iter("testcase"):
        outcome = next((c for c in case if c.tag in ("failure", "error", "skipped")), None)
        if outcome is None:
            counts["passed"] += 1
        elif outcome.tag == "skipped":
            counts["skipped"] += 1
            skips[outcome.get("message", "")] += 1
        else:
            counts["failed"] += 1
for reason, number in sorted(skips.items()):
    print(f"skipped {number}: {reason}")
print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
sys.exit(counts["failed"] > 0 or counts["passed"] == 0)
