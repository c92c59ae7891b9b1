"""Read `nucleic backends --json`; fail unless the named distribution's backends are listed and could be loaded."""

import json
import sys

wanted = sys.argv[1]
found = [backend for backend in json.load(sys.stdin)["backends"] if backend["package"] == wanted]
if not found:
    sys.exit(f"no backend of {wanted} is listed")
for backend in found:
    if backend["problem"]:
        sys.exit(f"{backend['name']} of {wanted} is broken: {backend['problem']}")
print(f"{wanted}: {', '.join(backend['name'] for backend in found)} can be loaded")
