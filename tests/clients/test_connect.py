"""`connect`: settings of clients are added, shown and taken away; everything else stays."""

from __future__ import annotations

import json
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from clawrl_gym import connect
from clawrl_gym.clients.catalogue import CLIENTS

GATEWAY = ("--url", "http://127.0.0.1:9/v1/", "--key", "sk-secret")
"""Nothing listens there."""
TOML = '# mine\nmodel = "gpt"  # the best\n\n[tui]\nmodel = "x"\n'
FILES = {
    "openclaw": ".openclaw/openclaw.json",
    "claude-code": ".claude/settings.json",
    "codex": ".codex/config.toml",
    "opencode": ".config/opencode/opencode.json",
    "pi": ".pi/agent/models.json",
    "aider": ".aider.conf.yml",
    "open-webui": ".config/clawrl_gym/open-webui.env",
    "librechat": "librechat.yaml",
}
FOLDERS = (
    "CODEX_HOME", "CLAUDE_CONFIG_DIR", "OPENCLAW_STATE_DIR", "OPENCLAW_CONFIG_PATH",
    "XDG_CONFIG_HOME", "XDG_STATE_HOME", "PI_CODING_AGENT_DIR", "CONFIG_PATH",
)  # fmt: skip
"""Variables that move a client's settings."""
THEIRS = {
    "json": '{"theme":  "dark", "env": {"A": "1"}, "models": {"x": 1}}',
    "toml": TOML,
    "yml": "# mine\nmodel: gpt\ndark-mode: true",
    "yaml": "version: 1.1.0\ncache: true\n",
    "env": "WEBUI_NAME=mine\n",
}
"""Settings that a person has, by how the file's name ends; as people write them."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in FOLDERS:
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def told(home: Path, name: str, text: str | None = None) -> Path:
    """A client's first file, which holds a text."""
    path = home / FILES[name]
    path.parent.mkdir(parents=True, exist_ok=True)
    if text is not None:
        path.write_text(text)
    return path


def theirs(name: str) -> str:
    return THEIRS[FILES[name].rpartition(".")[2]]


def parsed(path: Path) -> Any:
    text = path.read_text()
    if path.suffix == ".toml":
        return tomllib.loads(text)
    if path.suffix in (".yml", ".yaml"):
        return yaml.safe_load(text)
    if path.suffix == ".env":
        return dict(line.split("=", 1) for line in text.splitlines() if line[0] != "#")
    return json.loads(text)


def test_every_client_has_a_case() -> None:
    assert set(FILES) == set(CLIENTS)


@pytest.mark.parametrize("name", FILES)
def test_a_client_is_connected_and_what_it_had_comes_back_to_the_byte(
    home: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = told(home, name, theirs(name))
    path.chmod(0o644)
    had = parsed(path)
    assert connect.main([name, *GATEWAY]) == 0
    now = parsed(path)
    assert "sk-secret" in path.read_text()
    assert "http://127.0.0.1:9" in path.read_text()
    assert "/v1/v1" not in path.read_text()
    assert {key: now[key] for key in had if key not in ("model", "env", "models")} == {
        key: had[key] for key in had if key not in ("model", "env", "models")
    }
    assert stat.S_IMODE(path.stat().st_mode) == 0o600, "it holds a key"
    said = capsys.readouterr()
    assert f"wrote {path}" in said.out
    assert "--undo" in said.out
    assert "sk-secret" not in said.out
    assert "no gateway answers at http://127.0.0.1:9" in said.err

    assert connect.main([name, "--undo"]) == 0
    assert path.read_text() == theirs(name)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert connect.main([name, "--undo"]) == 0
    assert "nothing to undo" in capsys.readouterr().out


@pytest.mark.parametrize("name", FILES)
def test_a_client_without_settings_has_none_again(home: Path, name: str) -> None:
    assert connect.main([name, *GATEWAY]) == 0
    assert "sk-secret" in told(home, name).read_text()
    assert connect.main([name, "--undo"]) == 0
    left = [path for path in home.rglob("*") if path.is_file()]
    assert left == []


@pytest.mark.parametrize("name", FILES)
def test_connecting_again_changes_nothing_or_only_what_is_said_anew(
    home: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = told(home, name, theirs(name))
    connect.main([name, *GATEWAY])
    once = path.read_text()
    connect.main([name, *GATEWAY])
    assert path.read_text() == once
    assert f"unchanged: {path}" in capsys.readouterr().out
    connect.main([name, "--url", "http://127.0.0.1:9", "--key", "sk-other"])
    assert path.read_text() == once.replace("sk-secret", "sk-other")
    connect.main([name, "--undo"])
    assert path.read_text() == theirs(name)


@pytest.mark.parametrize("name", FILES)
def test_what_is_changed_meanwhile_stays_when_it_is_undone(home: Path, name: str) -> None:
    path = told(home, name, theirs(name))
    had = parsed(path)
    connect.main([name, *GATEWAY])
    added: dict[str, Any] = {"new": "1"}
    if path.suffix == ".json":
        path.write_text(json.dumps(parsed(path) | added))
    else:
        between = {".toml": " = ", ".env": "="}.get(path.suffix, ": ")
        quoted = "1" if path.suffix == ".env" else '"1"'
        path.write_text(f"new{between}{quoted}\n{path.read_text()}")
    connect.main([name, "--undo"])
    assert parsed(path) == had | added


def test_a_value_that_was_changed_since_is_the_persons(home: Path) -> None:
    path = told(home, "claude-code", '{"env": {"ANTHROPIC_MODEL": "old", "A": "1"}}')
    connect.main(["claude-code", *GATEWAY])
    settings = parsed(path)
    settings["env"]["ANTHROPIC_BASE_URL"] = "http://mine"
    path.write_text(json.dumps(settings))
    connect.main(["claude-code", "--undo"])
    wanted = {"ANTHROPIC_MODEL": "old", "A": "1", "ANTHROPIC_BASE_URL": "http://mine"}
    assert parsed(path) == {"env": wanted}


def test_codex_reads_ours_and_keeps_comments_and_tables(home: Path) -> None:
    path = told(home, "codex", TOML)
    connect.main(["codex", *GATEWAY])
    settings = parsed(path)
    assert (settings["model"], settings["model_provider"]) == ("policy", "clawrl")
    assert settings["model_providers"]["clawrl"]["wire_api"] == "responses"
    assert settings["tui"] == {"model": "x"}, "which is another setting"
    assert "# mine" in path.read_text()
    assert "# the best" in path.read_text()


def test_a_table_that_codex_writes_between_our_marks_stays(home: Path) -> None:
    path = told(home, "codex", TOML)
    connect.main(["codex", *GATEWAY])
    before, end, _ = path.read_text().rpartition("# <<<")
    path.write_text(f'{before}\n[projects."/p"]\ntrust_level = "trusted"\n{end} clawrl_gym\n')
    connect.main(["codex", "--undo"])
    trusted = {"projects": {"/p": {"trust_level": "trusted"}}}
    assert parsed(path) == tomllib.loads(TOML) | trusted


def test_each_folder_that_a_client_was_given_comes_back(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = told(home, "codex", TOML)
    connect.main(["codex", *GATEWAY])
    monkeypatch.setenv("CODEX_HOME", str(home / "other"))
    connect.main(["codex", *GATEWAY])
    connect.main(["codex", "--undo"])
    assert not (home / "other" / "config.toml").exists()
    assert "sk-secret" in here.read_text()
    monkeypatch.delenv("CODEX_HOME")
    connect.main(["codex", "--undo"])
    assert here.read_text() == TOML


def test_librechat_needs_a_version_only_where_it_has_none(home: Path) -> None:
    path = told(home, "librechat")
    connect.main(["librechat", *GATEWAY])
    assert "version" in parsed(path)
    (endpoint,) = parsed(path)["endpoints"]["custom"]
    assert endpoint["baseURL"] == "http://127.0.0.1:9/v1"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("claude-code", "{// mine\n}"),
        ("claude-code", "[1]"),
        ("claude-code", '{"env": 3}'),
        ("codex", "model = "),
        ("codex", "[model_providers.clawrl]\n"),
        ("aider", "a: [\n"),
        ("aider", "- a\n"),
        ("librechat", "endpoints:\n  custom: []\n"),
        ("pi", "\xff"),
    ],
)
def test_a_file_that_cannot_be_read_is_left_alone(
    home: Path, name: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = told(home, name)
    path.write_bytes(text.encode("latin-1"))
    assert connect.main([name, *GATEWAY]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {path}: ")
    assert error.count("\n") == 1
    assert path.read_bytes() == text.encode("latin-1")
    assert not (home / ".local").exists(), "there is nothing to undo"


def test_print_writes_nothing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert connect.main(["pi", "--print", *GATEWAY]) == 0
    said = capsys.readouterr().out
    assert "models.json" in said
    assert "settings.json" in said
    assert "sk-secret" in said
    assert list(home.iterdir()) == []
    path = told(home, "codex", TOML)
    connect.main(["codex", *GATEWAY])
    connected = path.read_text()
    capsys.readouterr()
    assert connect.main(["codex", "--undo", "--print"]) == 0
    assert capsys.readouterr().out == f"# {path}\n{TOML}"
    assert path.read_text() == connected


def test_a_link_into_a_repository_of_settings_stays_one(home: Path) -> None:
    real = home / "dotfiles" / "settings.json"
    real.parent.mkdir()
    real.write_text("{}")
    told(home, "claude-code").symlink_to(real)
    connect.main(["claude-code", *GATEWAY])
    assert told(home, "claude-code").is_symlink()
    assert "sk-secret" in real.read_text()
    connect.main(["claude-code", "--undo"])
    assert told(home, "claude-code").is_symlink()
    assert real.read_text() == "{}"


def test_the_key_and_the_address_are_those_of_the_folder_that_is_served_in(home: Path) -> None:
    folder = home / "served"
    folder.mkdir()
    (folder / "gateway.key").write_text("sk-of-the-folder")
    assert connect.main(["claude-code", "--dir", str(folder)]) == 0
    variables = parsed(told(home, "claude-code"))["env"]
    assert variables["ANTHROPIC_AUTH_TOKEN"] == "sk-of-the-folder"
    assert variables["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:8808", "where serve listens"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--url", "ftp://x", "--key", "k"],
        ["--url", "http://x:port", "--key", "k"],
        ["--url", "http://x?y=1", "--key", "k"],
        ["--url", "http://x"],
        ["--key", "a b"],
        ["--key", ""],
    ],
)
def test_an_address_or_key_that_cannot_be_one_is_refused(
    home: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert connect.main(["codex", *arguments]) == 2
    assert "expected" in capsys.readouterr().err
    assert not (home / ".codex").exists()


def test_an_unknown_client_is_refused_with_the_names_of_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        connect.main(["emacs"])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert "emacs" in error
    assert all(name in error for name in CLIENTS)
