"""Read `nucleic backends --json` and fail unless the named backend is listed and loaded."""

import json
import sys

for backend in json.load(sys.stdin):
    if backend["id"] == sys.argv[1]:
        sys.exit(f"{sys.argv[1]} is broken: {backend['broken']}" if backend.get("broken") else 0)
sys.exit(f"{sys.argv[1]} is not listed")
