"""The names that others may build on; a change here is a change of the interface."""

import clawrl_gym
from clawrl_gym.core.plugins import SEAMS
from clawrl_gym.core.types import StopReason
from clawrl_gym.envs.registration import builtin_specs
from clawrl_gym.envs.sandbox.interface import Sandbox


def test_the_librarys_names_stay() -> None:
    assert clawrl_gym.__all__ == [
        "__version__",
        "Action",
        "Agent",
        "AgentFault",
        "Algorithm",
        "AsyncLearner",
        "BenchConfig",
        "Case",
        "ClawError",
        "ConfigError",
        "Engine",
        "EngineCapabilities",
        "EngineClient",
        "EngineSetup",
        "EnvError",
        "Environments",
        "Episode",
        "EvaluateConfig",
        "Evaluation",
        "Exported",
        "Group",
        "Judge",
        "Learner",
        "LearnerCapabilities",
        "Logger",
        "LossInputs",
        "Message",
        "NoVerdict",
        "ParseFailure",
        "PolicyAddress",
        "PolicyError",
        "Prompts",
        "RunConfig",
        "Sample",
        "SampleBatch",
        "Sandbox",
        "SandboxCapabilities",
        "Segment",
        "ServeConfig",
        "ServedPolicy",
        "SftConfig",
        "Split",
        "StopReason",
        "Store",
        "TaskEnv",
        "TaskError",
        "TaskRef",
        "TaskSampler",
        "TokenLoss",
        "TrainingRun",
        "Turn",
        "TurnWeights",
        "Verdict",
        "Verdicts",
        "WeightsByTurn",
        "export_run",
        "group_advantages",
        "load_config",
        "make_env",
        "make_sample",
        "merge_turns",
        "run_comparison",
        "run_comparison_async",
        "run_episode",
        "run_episode_async",
        "run_evaluation",
        "run_evaluation_async",
        "run_serving",
        "run_serving_async",
        "run_sft",
        "run_sft_async",
        "run_training",
        "run_training_async",
        "write_report",
    ]


def test_environment_ids_stay() -> None:
    assert [spec.id for spec in builtin_specs()] == [
        "ClawRL/Conversation-v0",
        "ClawRL/Dataset-v0",
        "ClawRL/Gui-v0",
        "ClawRL/SWE-v0",
        "ClawRL/Terminal-v0",
        "ClawRL/Text-v0",
        "ClawRL/ToolCall-v0",
    ]


def test_entry_point_groups_stay() -> None:
    assert [seam.group for seam in SEAMS.values()] == [
        "clawrl_gym.agents",
        "clawrl_gym.algorithms",
        "clawrl_gym.engines",
        "clawrl_gym.envs",
        "clawrl_gym.hint_sources",
        "clawrl_gym.judges",
        "clawrl_gym.learners",
        "clawrl_gym.loggers",
        "clawrl_gym.losses",
        "clawrl_gym.sandboxes",
    ]


def test_reasons_to_stop_stay_as_they_are_stored() -> None:
    assert {reason.value for reason in StopReason} == {
        "terminated",
        "truncated",
        "context",
        "deadline",
        "agent_fault",
        "env_error",
        "no_verdict",
        "policy_error",
        "idle",
        "cancelled",
    }


def test_a_sandbox_has_these_methods_and_no_others() -> None:
    names = {name for name in vars(Sandbox) if not name.startswith("_")}
    assert names == {"exec", "write", "read", "mode", "successor", "close"}
