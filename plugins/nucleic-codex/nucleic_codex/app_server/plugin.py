"""The backend `codex` as Nucleic loads it: one function a hook, each returning the object that does the work."""

NUCLEIC_API = 1
