"""Writes down the names in the protocol of every pinned codex, for `nucleic drift codex`.

python tests/live/record_schema.py
"""

from fetch import CLIS, fetch
from nucleic_codex.drift import KEPT, schema_of
from nucleic_codex.program import Program, parse
from recording import save


def main() -> None:
    """One file a version."""
    for version in CLIS["codex"].versions:
        names = schema_of(Program(str(fetch("codex", version)), parse(version) or ()))
        save(KEPT / f"{version}.json", names)
        print(f"codex {version}: {sum(map(len, names.values()))} names in {len(names)} places")


if __name__ == "__main__":
    main()
