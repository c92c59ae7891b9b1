"""What `run` and `resume` take: the prompt, its parts, and an option for every field of a run.

A prompt that begins with `-` is one when it holds a blank and is the last argument, or follows `--`.
"""

import mimetypes
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import click
import orjson

from nucleic_core import specs
from nucleic_core._opening import RunOptions
from nucleic_core._values import JSON, unicode_text
from nucleic_core.settings import BackendSettings, load_rules

_F = TypeVar("_F", bound=Callable[..., object])
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_HINT = "A text that begins with '-' is the last argument and holds a blank, or follows '--', as in: -- '{}'"


class PromptCommand(click.Command):
    """A command whose last argument is a text for the agent."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take a last argument that reads as a text for one, even if it begins with a dash."""
        if "--" not in args and args and args[-1].startswith("-") and self._is_text(ctx, args):
            args = [*args[:-1], "--", args[-1]]
        try:
            return super().parse_args(ctx, list(args))
        except click.NoSuchOption as exc:
            dashed = next((arg for arg in args if arg.startswith(exc.option_name[:2])), exc.option_name)
            raise click.UsageError(f"{exc.format_message()} {_HINT.format(dashed)}", ctx) from exc

    def _is_text(self, ctx: click.Context, args: list[str]) -> bool:
        """Whether the last argument holds a blank, and is neither `--option=value` nor the value of an option."""
        *before, last = args
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        if not any(char.isspace() for char in last) or last.partition("=")[0] in _names(options):
            return False
        valued = _names(option for option in options if not (option.is_flag or option.count))
        return not before or before[-1] not in valued


def _names(options: Iterable[click.Option]) -> set[str]:
    return {name for option in options for name in (*option.opts, *option.secondary_opts)}


def _pairs(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for value in values:
        name, equals, rest = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{value!r} is not of the form NAME=VALUE.")
        pairs[name] = rest
    return pairs


def _settings(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> dict[str, JSON]:
    """A value is JSON where it can be (`true`, `5`, `["a"]`), else a text."""
    settings: dict[str, JSON] = {}
    for name, text in _pairs(ctx, param, values).items():
        try:
            settings[name] = orjson.loads(text)
        except ValueError:
            settings[name] = text
    return settings


def _schema(ctx: click.Context, param: click.Parameter, path: Path | None) -> JSON:
    if path is None:
        return None
    try:
        return orjson.loads(path.read_bytes())
    except ValueError as exc:
        raise click.BadParameter(f"{path} is no JSON: {exc}.") from exc


def _images(ctx: click.Context, param: click.Parameter, paths: Sequence[Path]) -> list[specs.Image]:
    images = []
    for path in paths:
        kind = mimetypes.guess_type(path.name)[0] or ""
        if not kind.startswith("image/"):
            raise click.BadParameter(f"{path}: its name does not say which kind of image it is, such as .png.")
        images.append(specs.Image(path.read_bytes(), kind))
    return images


def _contexts(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> list[specs.Context]:
    contexts = []
    for value in values:
        label, _, name = value.partition("=")
        path = Path(name)
        if not name or not path.is_file():
            raise click.BadParameter(f"{value!r} is not of the form LABEL=FILE with a file that exists.")
        contexts.append(specs.Context(label, path.read_text("utf-8", "replace")))
    return contexts


_INPUT = [
    click.option("--image", "images", type=_FILE, multiple=True, callback=_images, help="Show the agent a picture."),
    click.option(
        "--context", "contexts", metavar="LABEL=FILE", multiple=True, callback=_contexts, help="Add a file's text."
    ),
]

_RUN = [
    click.option("-m", "--model", help="The model, by the backend's own name for it."),
    click.option("--policy", "policies", metavar="NAME", multiple=True, help="Ask this policy; may be repeated."),
    click.option("--rules", type=_FILE, help="A fixed run: what these [[rule]] tables do not allow is denied."),
    click.option("--sandbox", metavar="MODE", help="A sandbox mode of the backend."),
    click.option("--system-prompt", metavar="TEXT", help="Words to add to the agent's own system prompt."),
    click.option("--mcp-config", type=_FILE, help="MCP servers for the agent, as the backend reads them."),
    click.option(
        "--add-dir",
        "add_dirs",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        multiple=True,
        help="Another directory that the agent may work in.",
    ),
    click.option("--partials/--no-partials", default=True, help="Stream text as it is written (the default)."),
    click.option("--output-schema", type=_FILE, callback=_schema, help="A JSON Schema for the final text."),
    click.option("--ephemeral", is_flag=True, help="Let the backend keep no session of its own."),
    click.option("--env", metavar="NAME=VALUE", multiple=True, callback=_pairs, help="Add to the agent's environment."),
    click.option("--arg", "args", metavar="ARG", multiple=True, help="Add to the agent's command line."),
    click.option(
        "--set",
        "settings",
        metavar="NAME=VALUE",
        multiple=True,
        callback=_settings,
        help="A setting of the backend; the value is JSON where it can be.",
    ),
]

_MANNER = [
    click.option("--json", "as_json", is_flag=True, help="Events as NDJSON on stdout, and nothing else there."),
    click.option(
        "--wait",
        is_flag=True,
        help="Without a terminal, wait for `nucleic approve` and its like instead of denying what policies leave open.",
    ),
    click.option(
        "--notify",
        metavar="CMD",
        help="Run this shell command when the session begins to wait for somebody; "
        "it finds NUCLEIC_SESSION and NUCLEIC_STATUS in its environment.",
    ),
]


def input_options(command: _F) -> _F:
    """The parts of an input beside its text."""
    return _all(_INPUT, command)


def run_options(command: _F) -> _F:
    """An option for every field of a run; what the backend does not honour is refused before it is started."""
    return _all(_RUN, command)


def manner_options(command: _F) -> _F:
    """How a run is shown, and who answers."""
    return _all(_MANNER, command)


def _all(options: Sequence[Callable[[_F], _F]], command: _F) -> _F:
    for option in reversed(options):
        command = option(command)
    return command


def the_text(text: str) -> str:
    """The prompt; `-` means that stdin has it."""
    return unicode_text(sys.stdin.buffer.read().decode(errors="replace") if text == "-" else text)


def an_input(text: str, contexts: Sequence[specs.Context], images: Sequence[specs.Image]) -> specs.AgentInput:
    """The parts in the order in which agents read them best: what it is about, then what to do."""
    return specs.AgentInput((*contexts, *images, specs.Text(text)))


def options_of(given: Mapping[str, JSON], from_file: BackendSettings) -> RunOptions:
    """The options of a run: what was given on the command line over what the settings say of the backend."""
    settings = dict(from_file.settings)
    if from_file.executable is not None:
        settings["executable"] = from_file.executable
    rules: Path | None = given["rules"]
    return RunOptions(
        model=given["model"] or from_file.model,
        sandbox=given["sandbox"],
        rules=None if rules is None else load_rules(rules),
        system_prompt=given["system_prompt"],
        mcp_config=given["mcp_config"],
        add_dirs=given["add_dirs"],
        partials=given["partials"],
        output_schema=given["output_schema"],
        ephemeral=given["ephemeral"],
        env={**from_file.env, **given["env"]},
        extra_args=(*from_file.args, *given["args"]),
        settings={**settings, **given["settings"]},
    )
