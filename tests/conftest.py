"""What every test needs: a state directory and a configuration of its own, and no plugins but those it names."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Without it a test would write into the data directory of whoever runs it."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("NUCLEIC_HOME", str(home / "state"))
    (home / "config.toml").touch()
    monkeypatch.setenv("NUCLEIC_CONFIG", str(home / "config.toml"))
    monkeypatch.delenv("NUCLEIC_PLUGINS", raising=False)
    return home / "state"


@pytest.fixture
def home(_own_home: Path) -> Path:
    """The state directory of this test."""
    return _own_home
