"""The command line of `codex exec`: one turn, in the sandbox that the run's rules come to.

The prompt goes over stdin (`-`, then end of file): arguments can be read by other users and end at 128 kB. What the user's
own files would add to the sandbox is taken out by name, because the rules know nothing of it:

- `--ignore-rules`: a rule file of the user's lets commands run outside the sandbox (seen with 0.141.0);
- `trust_level="untrusted"` for this run: otherwise 0.141.0 and 0.146.0 write into config.toml that the directory is
  trusted, and read the repository's own `.codex/config.toml`, which may widen the sandbox and bring MCP servers;
- `sandbox_workspace_write`: the directories, the network and /tmp that the user's config.toml may add;
- MCP servers, apps, plugins, image generation and web search: none of them is held by a sandbox.

`--skip-git-repo-check` is always given: it guards against changes that cannot be undone, which is what rules are for.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import attrs

from nucleic_codex.app_server.spawn import CREDENTIALS, ENDPOINT
from nucleic_codex.exec.access import Access
from nucleic_codex.overrides import refuse
from nucleic_codex.program import Program, spoken
from nucleic_core.errors import Unsupported
from nucleic_core.lowlevel import JSON
from nucleic_core.specs import ProcessSpec, RunSpec, plain_text

FORKS_FROM = (0, 171, 0)
"""The first version that was seen to have `exec fork`."""

FOREIGN = ("apps", "plugins", "image_generation")
"""Features whose tools run beside the sandbox."""

_HELD = "no sandbox holds what it brings in; the rules of the run decide about that"
REFUSED = dict.fromkeys(
    (
        "mcp_servers",
        "plugins",
        "tools",
        "web_search",
        *(f"features.{name}" for name in (*FOREIGN, "remote_plugin", "standalone_web_search")),
        *(f"features.{name}" for name in ("web_search", "web_search_cached", "web_search_request")),
    ),
    _HELD,
)
"""What a run may not add here, beside what no run of Codex may (`nucleic_codex.overrides`)."""


@attrs.frozen
class Files:
    """Files of one run, in a directory of its own: where Codex puts its last message, and what it is to read."""

    last_message: Path
    schema: Path | None = None
    images: tuple[Path, ...] = ()


@attrs.frozen
class UserConfig:
    """What counts of the user's own configuration: the names of MCP servers, and variables that hold providers' keys."""

    servers: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()


def spawn(
    run: RunSpec,
    program: Program,
    granted: Access,
    files: Files,
    user: UserConfig = UserConfig(),
    hook: tuple[str, ...] = (),
) -> ProcessSpec:
    """The process of a run; `hook` are the arguments that bring in our hook (`nucleic_codex.hook.arguments`).

    Raises Unsupported for `extra_args` that would undo what Nucleic answers for, and for a fork that this version cannot.
    """
    assert run.prompt is not None
    return ProcessSpec(
        argv=(program.path, "exec", "--json", *arguments(run, program, granted, files, user), *hook, *_thread(run)),
        inherit_env=(*CREDENTIALS, *ENDPOINT, *user.keys),
        cwd=run.cwd,
        stdin=plain_text(run.prompt).encode("utf-8", "replace"),
    )


def arguments(run: RunSpec, program: Program, granted: Access, files: Files, user: UserConfig) -> tuple[str, ...]:
    """The flags. The run's extra ones stand first: of two settings for one key the last counts."""
    _check(run, program)
    args = [*run.extra_args, f"--sandbox={granted.mode}", f"--cd={run.cwd}"]
    args += ["--skip-git-repo-check", "--ignore-rules", f"--output-last-message={files.last_message}"]
    for setting in _settings(run, granted, user):
        args += ["-c", setting]
    if not granted.foreign:
        args += [f"--disable={feature}" for feature in FOREIGN]
    if run.model is not None:
        args.append(f"--model={run.model}")
    if files.schema is not None:
        args.append(f"--output-schema={files.schema}")
    if run.ephemeral:
        args.append("--ephemeral")
    args += [f"--image={image}" for image in files.images]
    return tuple(args)


def _thread(run: RunSpec) -> tuple[str, ...]:
    """Which thread the turn belongs to, and `-`: the prompt comes over stdin."""
    if run.native_resume is None:
        return ("-",)
    return ("fork" if run.fork else "resume", run.native_resume, "-")


def _settings(run: RunSpec, granted: Access, user: UserConfig) -> Iterator[str]:
    yield "analytics.enabled=false"  # else the process lingers for seconds where nothing can be reached
    untrusted = {str(folder): {"trust_level": "untrusted"} for folder in _project(run.cwd)}
    yield f"projects={_toml(untrusted)}"
    if granted.mode == "workspace-write":
        yield f"sandbox_workspace_write.writable_roots={_toml([str(root) for root in granted.roots])}"
        yield f"sandbox_workspace_write.network_access={_toml(granted.network)}"
        yield f"sandbox_workspace_write.exclude_slash_tmp={_toml(not granted.scratch)}"
        yield f"sandbox_workspace_write.exclude_tmpdir_env_var={_toml(not granted.scratch)}"
    if not granted.search:
        yield 'web_search="disabled"'
    if not granted.foreign and user.servers:
        yield f"mcp_servers={_toml({name: {'enabled': False} for name in user.servers})}"
    if run.system_prompt is not None:
        yield f"developer_instructions={_toml(run.system_prompt)}"


def _project(cwd: Path) -> Iterable[Path]:
    """The directories by which Codex may know the project: those from here up to the repository's, and a worktree's home."""
    found: list[Path] = []
    for start in dict.fromkeys((cwd, cwd.resolve())):
        line = [start, *start.parents]
        root = next((place for place, folder in enumerate(line) if (folder / ".git").exists()), 0)
        found += line[: root + 1]
        with suppress(OSError):  # no file: no worktree
            # In a worktree it says `gitdir: <repository>/.git/worktrees/<name>`.
            home = line[root] / (line[root] / ".git").read_text(errors="replace").removeprefix("gitdir:").strip()
            if home.parent.name == "worktrees":
                found.append(home.parents[2])
    return dict.fromkeys(found)


def _check(run: RunSpec, program: Program) -> None:
    refuse(run.extra_args, REFUSED)
    if run.fork and program.version < FORKS_FROM:
        raise Unsupported(
            f"{program} cannot fork a session with exec; {spoken(FORKS_FROM)} can. Update it, or use the backend codex."
        )


def _toml(value: JSON) -> str:
    """A value as TOML writes it on one line. JSON's strings are TOML's, but for DEL."""
    match value:
        case dict():
            return "{" + ",".join(f"{_toml(key)}={_toml(item)}" for key, item in value.items()) + "}"
        case list():
            return "[" + ",".join(map(_toml, value)) + "]"
        case _:
            return json.dumps(value).replace("\x7f", "\\u007f")
