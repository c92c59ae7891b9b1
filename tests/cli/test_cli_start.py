"""How the command line starts: what it imports, what its help lists, how it reads a prompt."""

import subprocess
import sys

import click
import pytest

from nucleic_core._cli.run import command as run
from nucleic_core._cli.send import command as send


def test_the_help_imports_no_backend_and_no_command(nucleic):
    program = """
import sys
from nucleic_core._cli import main
try:
    main(["--help"])
except SystemExit:
    commands = {"run", "resume", "show", "decode", "backends", "conversation"}
    print(*[m for m in sys.modules if m.startswith(("nucleic_claude", "nucleic_core._demo", "rich"))])
    print(*[m for m in sys.modules if m.startswith("nucleic_core._cli.") and m.split(".")[-1] in commands])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=nucleic.env)
    assert done.stderr == ""
    text, _, modules = done.stdout.rpartition("Turn recorded messages into events.\n")
    assert "Give an agent a prompt" in text
    assert modules.split() == []


def test_commands_of_plugins_are_listed_by_name_and_package_without_being_loaded(nucleic, package):
    package("greeter", "nucleic.commands", "raise RuntimeError('loaded')", "greet = greeter:command")
    done = nucleic("--help")
    assert "greet" in done.stdout
    assert "(from greeter)" in done.stdout
    assert done.returncode == 0


def test_a_command_of_a_plugin_runs(nucleic, package):
    source = "import click\n@click.command()\ndef command():\n    click.echo('hello from outside')\n"
    package("greeter", "nucleic.commands", source, "greet = greeter:command")
    assert nucleic("greet").stdout == "hello from outside\n"


def test_a_broken_command_of_a_plugin_is_one_sentence(nucleic, package):
    package("greeter", "nucleic.commands", "raise RuntimeError('no luck')", "greet = greeter:command")
    done = nucleic("greet")
    assert done.returncode == 3
    assert done.stderr == "nucleic: The command 'greet' of greeter cannot be used: no luck.\n"


def test_a_plugin_cannot_replace_a_command_of_ours(nucleic, package):
    package("greeter", "nucleic.commands", "raise RuntimeError('loaded')", "config = greeter:command")
    assert "settings file" in nucleic("config").stdout


@pytest.mark.parametrize(
    ("arguments", "prompt"),
    [
        (["fix it"], "fix it"),
        (["- fix this\n- and that"], "- fix this\n- and that"),
        (["--json", "-v is broken, repair it"], "-v is broken, repair it"),
        (["-b", "demo", "--cwd is what I mean"], "--cwd is what I mean"),
        (["--", "-x"], "-x"),
        (["--", "--json"], "--json"),
        (["--system-prompt", "- be brief", "fix it"], "fix it"),
        (["fix it", "--system-prompt", "- be brief"], "fix it"),
        (["fix it", "--system-prompt=be very brief"], "fix it"),
    ],
)
def test_a_prompt_may_begin_with_a_dash(arguments, prompt):
    assert run.make_context("run", arguments).params["prompt"] == prompt


def test_a_message_may_begin_with_a_dash():
    assert send.make_context("send", ["abc", "- also this"]).params["text"] == "- also this"


@pytest.mark.parametrize("arguments", [["-xyz"], ["- do it", "--json"], ["--fix-it"]])
def test_what_begins_with_a_dash_and_is_no_option_says_how_to_be_a_prompt(arguments):
    with pytest.raises(click.UsageError) as raised:
        run.make_context("run", arguments)
    assert "No such option" in raised.value.message
    assert f"or follows '--', as in: -- '{arguments[0]}'" in raised.value.message


def test_a_prompt_is_read_from_stdin(nucleic):
    done = nucleic("run", "-b", "demo", "-", stdin="say this came through a pipe")
    assert "this came through a pipe" in done.stdout
    assert done.returncode == 0


def test_the_log_is_silent_unless_asked_for(nucleic, package):
    package("agentx", "nucleic.backends", "x = 1", "agentx = agentx")
    assert nucleic("backends").stderr == ""
    assert "agentx not loaded" in nucleic("-v", "backends").stderr
    assert "agentx not loaded" in nucleic("backends", "-v").stderr
