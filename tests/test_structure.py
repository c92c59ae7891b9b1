"""The house: which module may import which, what a payload may be called, what an import costs."""

import ast
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

import nucleic_core
from nucleic_core import approvals, backend, capabilities, errors, events, hookspecs, lowlevel, specs

ROOT = Path(__file__).parent.parent
MODULES = {
    path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__"): path
    for path in sorted((ROOT / "nucleic_core").rglob("*.py"))
}
PLUGINS = sorted((ROOT / "plugins").glob("*/*/**/*.py"))

VALUES = ("_values", "events", "approvals", "capabilities", "specs", "errors")
PROTOCOLS = ("backend", "hookspecs")
FACES = (*VALUES[1:], *PROTOCOLS, "lowlevel", "testing", "settings")
PLAIN = ("_visible", "_structure", "_toml", "_background", "_faults")
WORKING = ("_approvals", "_gates", "_store", "_wire", "_plugins")

LAYERS: dict[str, tuple[str, ...]] = {
    # a part of the core     what it may import, beside what all may
    "_values": (),
    **dict.fromkeys(VALUES[1:], VALUES),
    **dict.fromkeys(PROTOCOLS, (*VALUES, *PROTOCOLS)),
    **dict.fromkeys(PLAIN, (*VALUES, *PLAIN)),
    **dict.fromkeys(("settings", "_schema"), (*VALUES, *PLAIN, "_store")),
    **dict.fromkeys(WORKING, (*VALUES, *PROTOCOLS, *PLAIN, *WORKING)),
    "lowlevel": (*VALUES, *PROTOCOLS, *PLAIN, "_wire"),
    "_demo": FACES,
    "testing": (*FACES, *WORKING, "_session"),
    "_session": (*VALUES, *PROTOCOLS, *PLAIN, *WORKING),
    "_socket": (*VALUES, *PROTOCOLS, *PLAIN, *WORKING, "_session"),
    "_host": (*VALUES, *PROTOCOLS, *PLAIN, *WORKING, "_session", "_socket"),
    "_opening": (*VALUES, *PROTOCOLS, *PLAIN, *WORKING, "_session", "_host"),
}


def imports_of(path: Path, *, also_lazy: bool = True) -> set[str]:
    """The modules that a file imports; those under TYPE_CHECKING count, too."""
    tree = ast.parse(path.read_text())
    nodes = ast.walk(tree) if also_lazy else iter(tree.body)
    found: set[str] = set()
    for node in nodes:
        match node:
            case ast.Import(names=names):
                found.update(alias.name for alias in names)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                found.update(
                    f"{module}.{alias.name}" if f"{module}.{alias.name}" in MODULES else module for alias in names
                )
            case ast.ImportFrom(level=level) if level:
                pytest.fail(f"{path} has a relative import")
    return found


def part(module: str) -> str:
    """The part of the core that a module belongs to; empty for the face itself."""
    return module.split(".")[1] if "." in module else ""


@pytest.mark.parametrize("module", MODULES)
def test_arrows_point_one_way(module: str) -> None:
    mine = part(module)
    if mine in ("", "__main__", "_cli"):
        return  # they stand above all others
    allowed = LAYERS[mine]
    for imported in imports_of(MODULES[module]):
        if imported.split(".")[0] != "nucleic_core" or part(imported) == mine:
            continue
        assert part(imported) in allowed, f"{module} imports {imported}"


@pytest.mark.parametrize("module", [f"nucleic_core.{name}" for name in VALUES])
def test_value_modules_import_nothing_but_attrs(module: str) -> None:
    heavy = {
        name
        for name in imports_of(MODULES[module])
        if name.split(".")[0] not in sys.stdlib_module_names and not name.startswith("nucleic_core")
    }
    assert heavy <= {"attrs", "orjson"} if module.endswith("events") else heavy <= {"attrs"}


@pytest.mark.parametrize("path", [*PLUGINS, *(ROOT / "nucleic_core" / "_demo").glob("*.py")], ids=lambda p: p.name)
def test_plugins_import_the_public_faces_only(path: Path) -> None:
    for imported in imports_of(path):
        if imported.split(".")[0] == "nucleic_core" and part(imported) != "_demo":
            assert part(imported) in ("", *FACES), f"{path} imports {imported}"


@pytest.mark.parametrize("module", MODULES)
def test_no_module_is_longer_than_700_lines(module: str) -> None:
    assert len(MODULES[module].read_text().splitlines()) <= 700


@pytest.mark.parametrize("module", MODULES)
def test_a_module_says_what_it_is_for(module: str) -> None:
    text = MODULES[module].read_text()
    assert not text or ast.get_docstring(ast.parse(text))


@pytest.mark.parametrize("payload", events.KINDS.values(), ids=lambda cls: cls.kind)
def test_no_payload_field_bears_an_envelope_name(payload: type[events.EventData]) -> None:
    assert not set(payload.field_names) & set(events.ENVELOPE)
    assert payload.field_names == tuple(field.name for field in attrs.fields(payload))  # type: ignore[arg-type]


@pytest.mark.parametrize("face", [nucleic_core, lowlevel], ids=lambda m: m.__name__)
def test_every_public_name_is_there(face: object) -> None:
    names = face.__all__  # type: ignore[attr-defined]
    assert sorted(names, key=str.lower) == sorted(set(names), key=str.lower)
    assert all(hasattr(face, name) for name in names)


@pytest.mark.parametrize(
    "module", [approvals, backend, capabilities, errors, events, hookspecs, specs], ids=lambda m: m.__name__
)
def test_every_public_class_and_function_says_what_it_is(module: object) -> None:
    for name, thing in vars(module).items():
        if not name.startswith("_") and getattr(thing, "__module__", "") == module.__name__ and callable(thing):  # type: ignore[attr-defined]
            assert thing.__doc__, f"{module.__name__}.{name}"  # type: ignore[attr-defined]


def test_every_error_of_ours_is_a_nucleic_error() -> None:
    found = [thing for thing in vars(errors).values() if isinstance(thing, type)]
    assert all(issubclass(error, errors.NucleicError) for error in found)


# -- what an import costs -----------------------------------------------------------------------------------------------

LAZY = ("rich", "click", "cattrs", "sqlite3", "h11", "importlib_metadata", "platformdirs", "tree_sitter", "jsonschema")


def test_an_import_brings_nothing_heavy_along() -> None:
    code = f"import nucleic_core, sys; print([name for name in {LAZY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_import_takes_no_more_than_35_megabytes() -> None:
    """Its 200 ms of CPU are watched by the benchmark; a test that reads a clock fails for other people's reasons."""
    if sys.platform != "linux":
        pytest.skip("needs /proc")
    code = "import nucleic_core; print(open('/proc/self/status').read())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    peak = next(line.split()[1] for line in done.stdout.splitlines() if line.startswith("VmHWM"))
    assert int(peak) < 35 * 1024
