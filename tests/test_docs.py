"""What the documentation shows is run as it stands there."""

import re
import types
from importlib.metadata import EntryPoint
from pathlib import Path

import attrs
import pytest

from nucleic_core import Allow, Deny, open_host, open_session

ROOT = Path(__file__).parent.parent
TINKER = """
import json, sys
def say(**fields): print(json.dumps(fields), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if "do" in message:
        say(say="I will write note.txt")
        say(may="write", file="note.txt", n=1)
    else:
        if message["yes"]:
            open("note.txt", "w").write("a note")
            say(did="write", n=1)
        say(over=True)
"""


def code_blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)


@attrs.frozen
class Given:
    """A plugin handed to a host without being installed."""

    plugin: object
    name: str = "tinker"
    group: str = "nucleic.backends"

    def load(self):
        return self.plugin


@pytest.fixture
def tinker(tmp_path):
    plugin = types.ModuleType("nucleic_tinker")
    (source,) = code_blocks("docs/writing-a-backend.md", "python")
    exec(compile(source, "docs/writing-a-backend.md", "exec"), vars(plugin))
    (tmp_path / "tinker.py").write_text(TINKER)
    return Given(plugin)


@pytest.mark.parametrize("decision", [Allow(), Deny("not here")])
async def test_the_backend_of_the_tutorial_runs_and_asks_before_it_writes(tinker, tmp_path, decision):
    async with (
        open_host(plugins=[tinker]) as host,
        open_session("tinker", "make a note", cwd=tmp_path, host=host) as session,
    ):
        kinds = []
        async for event in session:
            kinds.append(event.kind)
            if event.kind == "approval_requested":
                assert event.data.request.paths == (tmp_path / "note.txt",)
                assert not (tmp_path / "note.txt").exists()
                await session.respond(event.data.request.id, decision)
    assert (tmp_path / "note.txt").exists() == isinstance(decision, Allow)
    assert kinds[0] == "user_message"
    assert kinds.index("tool_call_completed") < kinds.index("approval_requested") < kinds.index("approval_resolved")
    assert kinds.count("tool_result") == 1
    assert kinds[-2:] == ["turn_completed", "run_finished"]


def test_the_tutorials_entry_point_is_one():
    (toml,) = code_blocks("docs/writing-a-backend.md", "toml")
    import tomllib

    ((group, entries),) = tomllib.loads(toml)["project"]["entry-points"].items()
    assert [EntryPoint(name, value, group).module for name, value in entries.items()] == ["nucleic_tinker"]


def test_pages_name_only_files_that_exist():
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    named = {(page, name) for page in pages for name in re.findall(r"`(docs/[\w./-]+\.md)`", page.read_text("utf-8"))}
    assert not [(page.name, name) for page, name in named if not (ROOT / name).exists()]
