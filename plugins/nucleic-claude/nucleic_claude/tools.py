"""Claude Code's tools: the one name each has with us, and which fields of their inputs name files.

The vocabulary is the stream's own (`Bash`, `Edit`, `Write`, ...). The sub-agent tool has two native names: `init` and older
versions say `Task`, the stream says `Agent` (wire fact 7); with us it is `Agent`.
"""

NAMES = {"Task": "Agent"}
"""Native names that differ from ours."""

PATH_FIELDS = ("file_path", "notebook_path", "path")
"""Fields of a tool's input that hold one path, as the model wrote it: it may be relative (wire fact 43)."""


def tool_name(native: str) -> str:
    """Our name for a tool; MCP tools and unknown ones keep theirs."""
    return NAMES.get(native, native)


def native_name(native: str) -> str | None:
    """The native name, where ours differs."""
    return native if native in NAMES else None
