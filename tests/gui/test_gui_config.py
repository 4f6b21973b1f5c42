"""`env=gui`: composed, checked, prepared, and the same defaults everywhere."""

import re

import pytest

from clawrl_gym.cluster.envs import check_env
from clawrl_gym.config import RunConfig
from clawrl_gym.config.compose import compose
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.envs.gui import __main__ as command
from clawrl_gym.envs.gui.config import BrowserConfig, GuiEnvConfig
from clawrl_gym.envs.gui.env import GuiEnv
from clawrl_gym.envs.task_ids import NUMBERS, TaskIds

NOWHERE = ["env=gui", "env.browser.executable=/nowhere/chromium"]


def test_env_gui_composes_and_its_keys_are_checked():
    env = compose("train", ["env=gui", "env.observation=both", "agent.images=1"], RunConfig).env
    assert isinstance(env, GuiEnvConfig)
    assert env.observation == "both"
    with pytest.raises(ConfigError, match=r"'env.browser.memory'; did you mean 'env.browser.mem"):
        compose("train", ["env=gui", "env.browser.memory=1"], RunConfig)
    with pytest.raises(ConfigError, match=r"observation: got 'smell'"):
        compose("train", ["env=gui", "env.observation=smell"], RunConfig)


def test_the_environment_takes_the_keys_of_its_configuration_and_checks_them():
    env = GuiEnvConfig(width=800, browser={"memory_mb": 512}).make()
    assert env.unwrapped._options.width == 800
    assert env.unwrapped._options.browser == BrowserConfig(memory_mb=512)
    env.close()
    with pytest.raises(ConfigError, match=r"unknown configuration key 'env.widht'; did you mean"):
        GuiEnv(widht=800)


def test_the_configured_environment_is_made_without_a_browser():
    env = GuiEnvConfig(families=["shop_add"], films="all").make()
    assert isinstance(env.unwrapped, GuiEnv)
    env.close()


def test_without_a_browser_a_run_says_so_before_anything_is_started():
    config = compose("train", NOWHERE, RunConfig)
    with pytest.raises(ConfigError, match=r"/nowhere/chromium.*to have one: "):
        check_env(config.env, print)


@pytest.mark.browser
def test_a_run_starts_one_browser_before_anything_else():
    messages: list[str] = []
    assert check_env(compose("train", ["env=gui"], RunConfig).env, messages.append)
    assert messages[0].endswith(": ready")


@pytest.mark.browser
def test_preparing_says_which_chromium_is_used():
    messages: list[str] = []
    GuiEnv.prepare(GuiEnvConfig.of({}), messages.append)
    assert re.fullmatch(r"Chromium \d+\.[\d.]+: ready", messages[0])


@pytest.mark.browser
def test_validate_plays_tasks(capsys):
    ids = "gui-shop_add-train-000001,gui-mail_send-train-000002"
    assert command.run(["validate", "generated", "--ids", ids, "--jobs", "2"]) == 0
    assert "2 of 2 tasks hold." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["validate", "/nowhere"], "got env.tasks='/nowhere'"),
        (["validate", "generated", "--ids", "gui-x"], "got --ids gui-x"),
        (["validate", "generated", "--families", "nonesuch"], "nonesuch"),
    ],
)
def test_a_wrong_command_is_one_line_and_exit_code_2(arguments, message, capsys):
    assert command.run(arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"), [(["--help"], "{validate,watch}"), (["watch", "--help"], "--oracle")]
)
def test_help_tells_both_commands(arguments, told, capsys):
    with pytest.raises(SystemExit) as ended:
        command.run(arguments)
    assert ended.value.code == 0
    assert told in capsys.readouterr().out


def test_watching_a_wrong_task_is_one_line(capsys):
    assert command.run(["watch", "gui-x", "--port", "99999"]) == 1
    assert "got --port 99999" in capsys.readouterr().err


def test_whether_an_id_exists_is_known_without_looking_through_millions():
    ids = TaskIds("heldout", ("mail_send", "shop_add"), "gui-")
    assert all(name in ids for name in (ids[0], ids[-1], ids[999]))
    assert len(ids) == 2 * NUMBERS["heldout"]
    for name in (
        "gui-shop_add-train-000001", "shop_add-heldout-000001", "gui-shop-heldout-000001",
        "gui-shop_add-heldout-001000", "gui-shop_add-heldout-1", "gui-shop_add-heldout-", "", 3,
    ):  # fmt: skip
        assert name not in ids
