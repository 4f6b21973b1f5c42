"""What is looked at before a command starts, and what a dry run says of it."""

import fcntl
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import clawrl_gym as cg
from clawrl_gym import bench, evaluate, serve, train
from clawrl_gym.config import PolicyConfig, ServeConfig
from clawrl_gym.core.files.folder_lock import LOCK_FILE
from clawrl_gym.core.reach import why_unreachable
from clawrl_gym.inference.models.memory import EngineMemory
from clawrl_gym.inference.models.servable import model_problems
from clawrl_gym.inference.models.shape import shape_of_config, shape_of_folder, shape_of_hub_model
from clawrl_gym.inference.models.shipped import shipped_dir
from clawrl_gym.preflight.contradictions import missing_hints
from clawrl_gym.preflight.dry_run import plan_lines
from clawrl_gym.preflight.preflight import measured_tasks, preflight_serving, preflight_training
from clawrl_gym.preflight.requirements import Requirements, memory_problems, requirements_of
from clawrl_gym.rollout.collection.task_sampler import TaskSampler
from clawrl_gym.run.train import train as run_train
from clawrl_gym.run_folder.folder import RunFolder
from clawrl_gym.store import Store
from clawrl_gym.trainers.algorithms.algorithm import build_algorithm
from clawrl_gym.trainers.models.memory import LearnerMemory

MAINS = {"train": train.main, "serve": serve.main, "evaluate": evaluate.main, "bench": bench.main}
TINY = shipped_dir("tiny")
QWEN_4B = shape_of_hub_model("Qwen/Qwen3-4B") or shape_of_config({})


def words_of(part: object) -> str:
    """A case's name."""
    return " ".join(part) if isinstance(part, list) else str(part)


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("command", "arguments", "says"),
    [
        (
            "train",
            ["rollout.groups=3"],
            ["of 3 groups of 8 episodes", "600 episodes on held", "1 vLLM", "853,056 param"],
        ),
        ("train", ["env=conversation", "trainer=opd"], ["env=conversation", "the learner"]),
        ("serve", ["gateway.port=0", "learn=false"], ["conversations, no learning", "free port"]),
        ("evaluate", ["env=toolcall", "eval.tasks=7"], ["env=toolcall, 7 tasks of heldout"]),
        ("bench", ["experiment=personal_opd", "seeds=2"], ["2 runs, one after", "personal_opd"]),
    ],
    ids=words_of,
)
def test_a_dry_run_prints_the_configuration_and_what_would_be_started(
    command: str,
    arguments: list[str],
    says: list[str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert MAINS[command]([*arguments, "dry_run=true"]) == 0
    printed = capsys.readouterr().out
    config = cg.load_config([*arguments, "dry_run=true"], command)  # type: ignore[call-overload]
    assert yaml.safe_load(printed) == config.model_dump(mode="json")
    lines = "\n".join(line for line in printed.splitlines() if line.startswith("#"))
    for part in ("Configuration is valid.", "memory", "disk", "time", *says):
        assert part in lines, part
    assert list(tmp_path.rglob("*")) == [], "nothing is left"


def test_a_dry_runs_time_grows_with_what_is_trained_and_what_is_measured(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def minutes(*arguments: str) -> int:
        assert MAINS["train"]([*arguments, "dry_run=true"]) == 0
        (time,) = re.findall(r"time +about (\d+) min", capsys.readouterr().out)
        return int(time)

    usual = minutes("trainer.steps=40")
    assert minutes("trainer.steps=80") > usual
    assert minutes("trainer.steps=40", "eval.every=1", "eval.between_tasks=64") > usual


@pytest.mark.parametrize(("ends", "episodes"), [("true", 240), ("false", 0)])
def test_a_dry_run_counts_what_is_measured_at_the_ends_where_that_is_wanted(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ends: str,
    episodes: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = ["env=terminal", "eval.tasks=120", "eval.every=0", f"eval.ends={ends}"]
    assert MAINS["train"]([*settings, "dry_run=true"]) == 0
    assert f", {episodes} episodes on held-out tasks" in capsys.readouterr().out


@pytest.mark.sandbox
def test_looking_imports_nothing_heavy(tmp_path: Path) -> None:
    program = (
        "import sys; from clawrl_gym.train import main; "
        "code = main(['dry_run=true', 'eval.also=[toolcall]']); "
        "print(code, sorted({'torch', 'vllm', 'ray', 'transformers'} & set(sys.modules)))"
    )
    process = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert process.stdout.splitlines()[-1] == "0 []"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Path]:
    """The folder of a serving that runs: its lock is held."""
    folder = RunFolder(tmp_path / "served")
    folder.write(cg.load_config([f"run.dir={folder.path}", "gateway.port=7001"], "serve"))
    (folder.path / "run.json").write_text(json.dumps({"starts": []}))
    (folder.path / "gateway.key").write_text("sk-of-the-folder")
    with (folder.path / LOCK_FILE).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("4711")
        lock.flush()
        yield folder.path


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["gateway.port=0"], 2),
        (["gateway.port=0", "dry_run=true"], 2),
        (["gateway.port=7002", "print_config=true"], 0),
        (["gateway.port=0", "policy=qwen3_0_6b"], 2),
        (["gateway.host=0.0.0.0"], 2),
    ],
    ids=words_of,
)
def test_a_serving_that_is_refused_or_prints_changes_nothing_of_one_that_runs(
    served: Path, arguments: list[str], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    before = {path: path.stat().st_mtime_ns for path in served.rglob("*")}
    content = {path: path.read_bytes() for path in before if path.is_file()}
    assert serve.main([f"run.dir={served}", *arguments]) == code
    assert {path: path.stat().st_mtime_ns for path in served.rglob("*")} == before
    assert {path: path.read_bytes() for path in content} == content


def test_the_refusal_of_a_folder_in_use_says_whose_it_is_and_what_to_give(
    served: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert serve.main([f"run.dir={served}", "gateway.port=0"]) == 2
    error = capsys.readouterr().err
    assert "(process 4711)" in error
    assert "run.dir=PATH" in error


def test_the_snippet_of_a_running_serving_has_its_key(
    served: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    serve.main([f"run.dir={served}", "gateway.port=7001", "print_config=true"])
    assert "sk-of-the-folder" in capsys.readouterr().out


async def test_a_folder_is_free_again_when_its_store_is_closed(tmp_path: Path) -> None:
    config = cg.load_config([f"run.dir={tmp_path}", "gateway.port=0"], "serve")
    store = Store.open(tmp_path)
    with pytest.raises(cg.ConfigError, match="still going"):
        preflight_serving(config)
    await store.close()
    assert preflight_serving(config).folder.path == tmp_path


def test_a_run_that_ended_before_its_database_begins_when_resumed(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.write(cg.RunConfig())
    folder.check_resumable()
    (folder.checkpoints / "000003").mkdir(parents=True)
    with pytest.raises(cg.ConfigError, match=r"has checkpoints and no run\.db; restore that"):
        folder.check_resumable()


@pytest.mark.parametrize(
    ("rows", "ends", "steps", "is_complete"),
    [
        ([{"step": 3, "batch/samples": 8, "heldout/n": 120}], True, 3, True),
        ([{"step": 3, "batch/samples": 8}, {"step": 3, "heldout/n": 120}], True, 3, True),
        ([{"step": 3, "batch/samples": 8}], True, 3, False),
        ([{"step": 3, "batch/samples": 8}], False, 3, True),
        ([{"step": 2, "batch/samples": 8}, {"step": 3, "heldout/n": 120}], True, 3, False),
        ([{"step": 3, "batch/samples": 8, "heldout/n": 120}], True, 4, False),
        ([], True, 3, False),
    ],
)
async def test_a_run_that_has_made_and_measured_all_its_updates_is_complete(
    tmp_path: Path, rows: list[dict[str, int]], ends: bool, steps: int, is_complete: bool
) -> None:
    of_run = ["env=terminal", "trainer.steps=3", f"eval.ends={ends}"]
    RunFolder(tmp_path).write(cg.load_config(of_run))
    await Store.open(tmp_path).close()
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    plan = preflight_training(cg.load_config([f"resume={tmp_path}", f"trainer.steps={steps}"]))
    assert plan.is_complete == is_complete
    lines = list(plan_lines(plan))
    assert any("3 of 3 updates, and measured" in line for line in lines) == is_complete
    assert any("vLLM" in line for line in lines) != is_complete


async def test_resuming_a_run_that_is_complete_copies_what_its_end_could_not(
    tmp_path: Path,
) -> None:
    run, there = tmp_path / "first", tmp_path / "there"
    of_run = ["env=terminal", "trainer.steps=3", "eval.ends=false", "ui=line"]
    RunFolder(run).write(cg.load_config([*of_run, f"learner.remote_checkpoints={there}"]))
    await Store.open(run).close()
    (run / "metrics.jsonl").write_text('{"step": 3, "batch/samples": 8}\n')
    shutil.copytree(TINY, run / "checkpoints" / "000003")
    await run_train(cg.load_config([f"resume={run}", "ui=line"]))
    copied = there / "first" / "checkpoints" / "000003"
    assert (copied / "manifest.json").is_file()
    assert (copied / "model.safetensors").read_bytes() == (TINY / "model.safetensors").read_bytes()


def test_the_shipped_model_is_servable() -> None:
    assert list(model_problems(TINY, PolicyConfig())) == []
    shape = shape_of_folder(TINY)
    assert (shape.parameters, shape.layers, shape.hidden) == (818_368, 3, 128)


def test_a_large_model_needs_its_optimizer_and_its_cache() -> None:
    config = cg.load_config(["policy=qwen3_4b", "policy.dtype=bfloat16"])
    needs = requirements_of(config, QWEN_4B, "cpu")
    assert needs.host_memory == pytest.approx(4.022e9 * (2 + 16) / 2**30 + 4 + 2.7, rel=0.05)
    assert needs.disk > (2 * 12 + 2 * 4) * 4.022e9 / 2**30
    on_gpu = requirements_of(config, QWEN_4B, "cuda")
    assert on_gpu.host_memory < 4
    assert on_gpu.engine.weights == pytest.approx(7.5, rel=0.01)
    assert on_gpu.learner.resident == pytest.approx(67.4, rel=0.01)
    reference = cg.load_config(["policy=qwen3_4b", "trainer.kl_coef=0.1"])
    assert requirements_of(reference, QWEN_4B, "cuda").learner.others > 14
    away = cg.load_config(["policy=qwen3_4b", "learner=full"])
    assert requirements_of(away, QWEN_4B, "cuda").learner.resident == pytest.approx(7.5, rel=0.01)
    assert requirements_of(away, QWEN_4B, "cuda").host_memory > 60


def test_what_only_serves_needs_no_learner() -> None:
    config = cg.load_config(["policy=qwen3_4b", "learn=false"], "serve")
    assert requirements_of(config, QWEN_4B, "cuda").learner.total == 0
    measured = cg.load_config(["policy=qwen3_4b"], "evaluate")
    assert requirements_of(measured, QWEN_4B, "cpu").host_memory < 20


@pytest.mark.parametrize(
    ("memory_gib", "gpu_gib", "says"),
    [
        (64.0, None, []),
        (2.0, None, ["got 2.0 GiB of free memory, expected at least 3.0 GiB"]),
        (64.0, 140.0, []),
        (64.0, 80.0, ["got 44 GiB of the GPU for the learner", "expected 60 GiB"]),
        (64.0, 16.0, ["got policy.gpu_memory_utilization=0.45 of 16 GiB", "for the learner"]),
    ],
)
def test_what_does_not_fit_is_refused(
    memory_gib: float, gpu_gib: float | None, says: list[str]
) -> None:
    engine = EngineMemory(weights=7.5, adapters=0.0, kv_cache=0.5, working=1.0)
    learner = LearnerMemory(base=15.0, gradients=15.0, optimizer=29.9, activations=99.0)
    needs = Requirements(3.0, engine, learner, disk=1.0)
    problems = "\n".join(memory_problems(needs, PolicyConfig(), memory_gib, gpu_gib))
    assert all(part in problems for part in says)
    assert bool(problems) == bool(says)


@pytest.mark.parametrize(
    ("arguments", "misses"),
    [
        (["trainer=opd"], True),
        (["trainer=opd", "judge=rule"], False),
        (["trainer=hybrid", "judge=chain"], False),
        (["trainer=hybrid", "judge=reward_model"], True),
        (["trainer=grpo"], False),
        (["trainer=binary", "judge=feedback"], False),
        (["env=[conversation,terminal]", "trainer=hybrid"], False),  # rewards in the terminal
        (["env=[conversation,terminal]", "trainer=opd"], True),
        (["env=[toolcall,terminal]", "trainer=hybrid"], True),
    ],
    ids=words_of,
)
def test_who_follows_hints_wants_somebody_who_gives_them(
    arguments: list[str], misses: bool
) -> None:
    config = cg.load_config(arguments)
    algorithm = build_algorithm(config.trainer, config.rollout.group_size)
    assert bool(list(missing_hints(config, algorithm))) is misses
    served = ServeConfig(trainer=config.trainer, judge=config.judge)
    assert not list(missing_hints(served, algorithm)), "people give hints, too"


def test_an_address_is_reached_or_why_not() -> None:
    assert why_unreachable("http://127.0.0.1:9/v1") == "Connection refused"
    assert "expected an address" in (why_unreachable("ftp:nowhere") or "")


@pytest.mark.parametrize("env", ["terminal", "toolcall", "swe"])
def test_an_image_that_is_to_be_made_is_said_and_not_made(env: str, without_engine: None) -> None:
    config = cg.load_config([f"env={env}", "sandbox=docker"]).env
    with pytest.raises(cg.EnvError, match=r"/nowhere/docker\.sock"):
        config.long_preparation()
    assert cg.load_config([f"env={env}", "sandbox=bubblewrap"]).env.long_preparation() is None


@pytest.mark.parametrize("split", ["heldout", "train"])
def test_tasks_of_the_split_that_is_named_are_measured(split: str) -> None:
    config = cg.load_config(["env=terminal", "eval.tasks=3", f"split={split}"], "evaluate")
    tasks = measured_tasks(config, TaskSampler.of(config.env, config.seed))
    assert len(tasks) == 3
    assert all(f"-{split}-" in str(task.id) for task in tasks)


@pytest.mark.docker
def test_with_an_engine_a_dry_run_makes_no_image(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["sandbox=docker", "env.sandbox.image=clawrl/nowhere:1", "dry_run=true"]
    assert train.main(arguments) == 0
    printed = capsys.readouterr().out
    assert "the image clawrl/nowhere:1 is not there: it is made first" in printed
