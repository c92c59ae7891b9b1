"""Settings and rules files: every mistake is one sentence with its line, every value says where it comes from."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nucleic_core.approvals import Rule
from nucleic_core.errors import BadSettings
from nucleic_core.settings import BackendSettings, load_rules, load_settings


@pytest.fixture
def config(tmp_path):
    """Write the settings file and load it."""
    path = tmp_path / "config.toml"

    def load(text="", env=None, **options):
        path.write_text(text)
        return load_settings(env={"NUCLEIC_CONFIG": str(path), "HOME": str(tmp_path), **(env or {})}, **options)

    load.path = path
    return load


FULL = """\
backend = "claude"
policies = ["ask", "read-only"]
responder_deadline = 600

[backends.claude]
executable = "/opt/claude"
args = ["--debug"]
env = { ANTHROPIC_BASE_URL = "http://127.0.0.1:1" }
model = "opus"

[backends.claude.settings]
channel = "mcp"
deep = { any = [1, 2.5, true] }
"""


def test_a_full_file_is_read_and_every_value_says_that_it_comes_from_it(config):
    settings = config(FULL)
    assert settings.backend == "claude"
    assert settings.policies == ("ask", "read-only")
    assert settings.responder_deadline == 600
    assert settings.of("claude") == BackendSettings(
        "/opt/claude",
        ("--debug",),
        {"ANTHROPIC_BASE_URL": "http://127.0.0.1:1"},
        "opus",
        {"channel": "mcp", "deep": {"any": [1, 2.5, True]}},
    )
    assert settings.of("codex") == BackendSettings()
    names = ["backend", "policies", "responder_deadline"]
    names += [f"backends.claude.{name}" for name in ("executable", "args", "env", "model", "settings")]
    assert {name: settings.sources[name] for name in names} == dict.fromkeys(names, str(config.path))


def test_values_of_the_environment_given_to_a_backend_are_not_in_a_repr(config):
    assert "127.0.0.1" not in repr(config(FULL))


def test_without_a_file_everything_is_default(tmp_path):
    settings = load_settings(env={"NUCLEIC_HOME": str(tmp_path)}, policies=[])
    assert (settings.backend, settings.policies, settings.responder_deadline, settings.plugins) == (
        None,
        (),
        None,
        None,
    )
    assert settings.sources["backend"] == "default"


def test_an_option_beats_the_environment_and_the_environment_the_file(config):
    env = {"NUCLEIC_BACKEND": "codex"}
    assert config(FULL, env=env).backend == "codex"
    assert config(FULL, env=env).sources["backend"] == "NUCLEIC_BACKEND"
    assert config(FULL, env=env, backend="demo").backend == "demo"
    assert config(FULL, env=env, backend="demo").sources["backend"] == "option"
    assert config(FULL, policies=["deny"], responder_deadline=5.0).policies == ("deny",)


def test_home_and_plugins_come_from_the_environment(config, tmp_path):
    settings = config(env={"NUCLEIC_HOME": "/somewhere", "NUCLEIC_PLUGINS": " a, b ,"})
    assert (settings.home, settings.sources["home"]) == (Path("/somewhere"), "NUCLEIC_HOME")
    assert settings.plugins == ("a", "b")
    assert config(env={"NUCLEIC_PLUGINS": ""}).plugins == ()
    assert config(home=tmp_path).sources["home"] == "option"


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ('backend = "claude"\n\npolices = ["ask"]\n', 3, "unknown key `polices`; known here are backend, policies"),
        ("# first\nbackend = 5\n", 2, "`backend` must be a text"),
        ("policies = [\n  'ask',\n  7,\n]\n", 1, "must be a text"),
        ("backend = 'x'\npolicies = 'ask'\n", 2, "`policies` must be a list"),
        ("responder_deadline = true\n", 1, "`responder_deadline` must be a number"),
        ("\nresponder_deadline = 0\n", 2, "must be more than 0"),
        ("responder_deadline = nan\n", 1, "must be more than 0"),
        ("[backends.claude]\nmodel = 'x'\n[backends.codex]\nexecutable = 'x'\nmodle = 'x'\n", 5, "unknown key `modle`"),
        ("[backends.claude]\nmodel = 'x'\n\n[backends.codex.env]\nA = 1\n", 5, "`A` must be a text"),
        ("[backends]\nclaude = 'x'\n", 2, "`claude` must be a table"),
        ("backends.codex.args = ['a']\nbackends.codex.\"odd key\" = 1\n", 2, "unknown key `odd key`"),
        ("[backends.a]\n[backends.b]\nsettings = []\n", 3, "`settings` must be a table"),
        ("[[backends]]\n", 1, "`backends` must be a table"),
        ('backend = """\nlong\n"""\n[nonsense]\nx = 1\n', 4, "unknown key `nonsense`"),
    ],
)
def test_a_mistake_is_told_with_its_line(config, text, line, says):
    with pytest.raises(BadSettings) as caught:
        config(text)
    assert str(caught.value).startswith(f"{config.path}, line {line}: ")
    assert says in str(caught.value)


@pytest.mark.parametrize("text", ["backend = ", "= 1", 'backend = "a"\nbackend = "b"\n'])
def test_what_is_no_toml_is_told_with_its_line(config, text):
    with pytest.raises(BadSettings, match=r"is no valid TOML: .*(line|end of document)"):
        config(text)


def test_a_named_file_that_is_missing_or_no_text_is_told(config, tmp_path):
    with pytest.raises(BadSettings, match="cannot read"):
        load_settings(env={"NUCLEIC_CONFIG": str(tmp_path / "missing.toml")})
    with pytest.raises(BadSettings, match="cannot read"):
        load_settings(env={"NUCLEIC_CONFIG": str(tmp_path)})
    config.path.write_bytes(b"backend = '\xff'")
    with pytest.raises(BadSettings, match="no valid TOML"):
        load_settings(env={"NUCLEIC_CONFIG": str(config.path)})


@given(st.text(alphabet="ab[]=.'\"#{},1 \n", max_size=60))
def test_no_text_makes_loading_raise_anything_else(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("settings") / "config.toml"
    path.write_text(text)
    with contextlib.suppress(BadSettings):
        load_settings(env={"NUCLEIC_CONFIG": str(path)})


def rules(tmp_path, text):
    path = tmp_path / "rules.toml"
    path.write_text(text)
    return load_rules(path)


def test_rules_are_read_in_order(tmp_path):
    text = """\
[[rule]]
verdict = "deny"
path = "**/.env"

[[rule]]
verdict = "allow"
tool = "Bash"
pattern = "git status"
max_risk = "read_only"
"""
    assert rules(tmp_path, text) == (
        Rule("deny", path="**/.env"),
        Rule("allow", tool="Bash", pattern="git status", max_risk="read_only"),
    )


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("[[rule]]\nverdict = 'allow'\n[[rule]]\nverdict = 'maybe'\n", 4, "`verdict` must be one of allow, deny"),
        ("[[rule]]\nverdict = 'allow'\n\n[[rule]]\ntool = 'Bash'\n", 4, "`verdict` is missing"),
        ("[[rule]]\nverdict = 'allow'\nrisk = 'write'\n", 3, "unknown key `risk`"),
        ("[[rule]]\nverdict = 'allow'\nmax_risk = 'readOnly'\n", 3, "must be one of read_only, write"),
        ("[[rules]]\nverdict = 'allow'\n", 1, "unknown key `rules`"),
        ("rule = 5\n", 1, "`rule` must be a list"),
        ("# all\nrule = [5]\n", 2, "must be a table"),
    ],
)
def test_a_mistake_in_a_rules_file_is_told_with_its_line(tmp_path, text, line, says):
    with pytest.raises(BadSettings) as caught:
        rules(tmp_path, text)
    assert f"rules.toml, line {line}: " in str(caught.value)
    assert says in str(caught.value)


def test_an_empty_rules_file_is_a_mistake(tmp_path):
    with pytest.raises(BadSettings):
        rules(tmp_path, "")
    with pytest.raises(BadSettings, match=r"has no \[\[rule\]\]"):
        rules(tmp_path, "rule = []")
