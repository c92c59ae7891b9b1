"""`sessions`, `show`, `backends` and `config`."""

import json

BROKEN = "NUCLEIC_API = 99\n"


def test_sessions_are_listed_the_latest_first(nucleic):
    assert "No sessions yet." in nucleic("sessions").stdout
    nucleic("run", "-b", "demo", "say one")
    nucleic("run", "-b", "demo", "fail now")
    header, latest, first = nucleic("sessions").stdout.splitlines()
    assert header.split()[:3] == ["session", "backend", "status"]
    assert "error" in latest
    assert "fail now" in latest
    assert "finished" in first
    rows = json.loads(nucleic("sessions", "--json").stdout)
    assert [(row["title"], row["status"], row["cwd"]) for row in rows] == [
        ("fail now", "error", str(nucleic.cwd)),
        ("say one", "finished", str(nucleic.cwd)),
    ]


def test_a_session_whose_process_died_says_so(nucleic):
    running = nucleic.start("run", "-b", "demo", "--json", "--wait", "run true")
    running.next_ask()
    assert "awaiting approval  " in nucleic("sessions").stdout
    running.process.kill()
    running.process.wait()
    assert "awaiting approval (its process is gone)" in nucleic("sessions").stdout


def test_show_tells_a_transcript_as_the_run_did(nucleic):
    ran = nucleic("run", "-b", "demo", "think hm\nsay hi\nwrite a.txt x")
    session = nucleic.transcript()[0]["session"]
    assert nucleic("show", session[:8]).stdout == ran.stdout
    shown = nucleic("show", session, "--json").stdout
    assert [json.loads(line) for line in shown.splitlines()] == nucleic.transcript()


def test_show_follows_a_session_of_another_process_to_its_end(nucleic):
    running = nucleic.start("run", "-b", "demo", "--json", "--wait", "run true\nsay over")
    ask = running.next_ask()
    following = nucleic.start("show", "--follow", "--json", running.events[0]["session"])
    assert following.next_ask() == ask
    nucleic("approve", ask)
    assert following.end() == 0
    assert following.events[-1]["kind"] == "run_finished"


def test_damaged_lines_are_told_in_their_place(nucleic):
    nucleic("run", "-b", "demo", "say one")
    (path,) = nucleic.home.glob("sessions/*/transcript.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], b"\xff{torn\n", *lines[4:]]))
    done = nucleic("show", path.parent.name)
    assert done.returncode == 0
    assert "! line 3 of this transcript is damaged" in done.stdout
    assert "completed" in done.stdout


def test_backends_says_what_is_there_and_what_is_broken_and_why(nucleic, package):
    package("newer", "nucleic.backends", BROKEN, "newer = newer")
    package("crashing", "nucleic.backends", "raise RuntimeError('boom')", "crashing = crashing")
    package("watcher", "nucleic.plugins", BROKEN, "watcher = watcher")
    done = nucleic("backends")
    assert done.returncode == 0
    rows = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert "yes" in rows["demo"]
    assert "is written for plugin API 99" in rows["newer"]
    assert "RuntimeError: boom" in rows["crashing"]
    assert "broken: watcher of watcher: it is written for plugin API 99" in done.stdout
    known = json.loads(nucleic("backends", "--json").stdout)
    demo = next(one for one in known["backends"] if one["name"] == "demo")
    assert demo["usable"] is True
    assert demo["probe"] == {"installed": True, "version": "1", "logged_in": True, "next_step": ""}
    assert demo["capabilities"]["interactive_approvals"] is True
    assert ("nucleic.plugins", "watcher") in {(entry["group"], entry["name"]) for entry in known["broken"]}


def test_config_shows_each_setting_and_where_it_comes_from(nucleic):
    nucleic.config.write_text('policies = ["read-only"]\n[backends.demo]\nmodel = "m"\nenv = {TOKEN = "secret"}\n')
    nucleic.env["NUCLEIC_BACKEND"] = "demo"
    done = nucleic("config")
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["backend", "demo", "NUCLEIC_BACKEND"] in rows
    assert ["home", str(nucleic.home), "NUCLEIC_HOME"] in rows
    assert ["policies", "read-only", str(nucleic.config)] in rows
    assert ["backends.demo.env", "TOKEN", str(nucleic.config)] in rows
    assert ["responder_deadline", "-", "default"] in rows
    assert "secret" not in done.stdout
    known = json.loads(nucleic("config", "--json").stdout)
    assert known["file"] == str(nucleic.config)
    assert known["settings"]["backend"] == {"value": "demo", "source": "NUCLEIC_BACKEND"}
