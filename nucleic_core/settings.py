"""What the user has set: `config.toml`, environment variables and options, and which of them each value comes from.

An option beats the environment, the environment beats the file. A repository's own files are never read as settings.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from nucleic_core._store.home import where_home_is
from nucleic_core._toml import mistake, read_toml
from nucleic_core._values import JSON
from nucleic_core.approvals import Rule
from nucleic_core.errors import BadSettings

__all__ = ["BackendSettings", "Settings", "load_rules", "load_settings"]


@attrs.frozen
class BackendSettings:
    """The table `[backends.<id>]`. `args` and `env` are added to the agent's; `settings` are checked by the backend."""

    executable: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    model: str | None = None
    settings: Mapping[str, JSON] = attrs.field(factory=dict)


@attrs.frozen
class _File:
    """`config.toml` as a whole."""

    backend: str | None = None
    policies: tuple[str, ...] = ()
    responder_deadline: float | None = None
    backends: Mapping[str, BackendSettings] = attrs.field(factory=dict)


@attrs.frozen
class Settings:
    """The values that hold, and in `sources` where each comes from: `option`, a variable's name, a file, or `default`.

    `plugins` names the only ones to load, None all. `responder_deadline` is in seconds, None for none. A backend's values
    are in `sources` as `backends.<id>.<name>`.
    """

    home: Path
    plugins: tuple[str, ...] | None
    backend: str | None
    policies: tuple[str, ...]
    responder_deadline: float | None
    backends: Mapping[str, BackendSettings]
    sources: Mapping[str, str]

    def of(self, backend: str) -> BackendSettings:
        """What is set for one backend."""
        return self.backends.get(backend, BackendSettings())


def config_path(env: Mapping[str, str]) -> Path:
    """`$NUCLEIC_CONFIG`, or `config.toml` in the platform's configuration directory."""
    if chosen := env.get("NUCLEIC_CONFIG"):
        return Path(chosen)
    import platformdirs

    return platformdirs.user_config_path("nucleic", appauthor=False) / "config.toml"


def load_settings(
    *,
    home: Path | None = None,
    backend: str | None = None,
    policies: Sequence[str] = (),
    responder_deadline: float | None = None,
    env: Mapping[str, str] = os.environ,
) -> Settings:
    """Put options (the arguments; None and empty are not given), environment and file together.

    Raises BadSettings with the line for an unknown key or a wrong value, and when $NUCLEIC_CONFIG names no file.
    """
    path = config_path(env)
    file = _read(path) if path.exists() or env.get("NUCLEIC_CONFIG") else _File()
    sources: dict[str, str] = {}

    def choose(name: str, option: JSON, variable: str | None, in_file: JSON, default: JSON = None) -> JSON:
        named = env.get(variable) if variable else None
        candidates = [("option", option), (variable or "", named), (str(path), in_file), ("default", default)]
        source, value = next((pair for pair in candidates if pair[1]), candidates[-1])
        sources[name] = source
        return value

    choose("home", home, "NUCLEIC_HOME", None)
    chosen_backend = choose("backend", backend, "NUCLEIC_BACKEND", file.backend)
    chosen_policies = choose("policies", tuple(policies), None, file.policies, ())
    deadline = choose("responder_deadline", responder_deadline, None, file.responder_deadline)
    plugins = env.get("NUCLEIC_PLUGINS")
    sources["plugins"] = "default" if plugins is None else "NUCLEIC_PLUGINS"
    for name, table in file.backends.items():
        for field in attrs.fields(BackendSettings):
            if getattr(table, field.name):
                sources[f"backends.{name}.{field.name}"] = str(path)
    return Settings(
        home=home or where_home_is(env),
        plugins=None if plugins is None else tuple(name.strip() for name in plugins.split(",") if name.strip()),
        backend=chosen_backend,
        policies=chosen_policies,
        responder_deadline=deadline,
        backends=file.backends,
        sources=sources,
    )


def _read(path: Path) -> _File:
    file = read_toml(path, _File)
    if file.responder_deadline is not None and not file.responder_deadline > 0:
        raise mistake(path, ("responder_deadline",), "`responder_deadline` must be more than 0; leave it out for none")
    return file


@attrs.frozen
class _RulesFile:
    """A file of `[[rule]]` tables."""

    rule: tuple[Rule, ...]


def load_rules(path: Path) -> tuple[Rule, ...]:
    """The rules of a fixed run, in order, from `[[rule]]` tables. Raises BadSettings with the line of a mistake."""
    rules = read_toml(path, _RulesFile).rule
    if not rules:
        raise BadSettings(f"{path} has no [[rule]]. Without one the run would be denied everything.")
    return rules
