"""What docs/stability.md promises of the configuration: keys, their types, bounds and defaults.

A change here is one that users notice: it belongs into CHANGELOG.md, and
`python -m tests.recipe.test_stable_keys` writes the new file.
"""

import json
from pathlib import Path

from pydantic import BaseModel, JsonValue

from clawrl_gym.config import (
    BenchConfig,
    EvaluateConfig,
    RejudgeConfig,
    RunConfig,
    ServeConfig,
    SftConfig,
)
from clawrl_gym.core.plugins import ENVIRONMENTS

GOLDEN = Path(__file__).parents[1] / "fixtures" / "golden" / "configuration.json"
_WORDS = ("description", "title")


def configuration() -> dict[str, JsonValue]:
    """The JSON schema of each command and kind of environment, without its prose."""
    models: dict[str, type[BaseModel]] = {
        "train": RunConfig,
        "sft": SftConfig,
        "serve": ServeConfig,
        "evaluate": EvaluateConfig,
        "rejudge": RejudgeConfig,
        "bench": BenchConfig,
    }
    for name in ENVIRONMENTS.builtin:
        models[f"env={name}"] = ENVIRONMENTS.resolve(name).target
    return {name: _bare(model.model_json_schema()) for name, model in models.items()}


def _bare(schema: JsonValue) -> JsonValue:
    if isinstance(schema, list):
        return [_bare(value) for value in schema]
    if not isinstance(schema, dict):
        return schema
    fields = schema.get("type") == "object" and "properties" in schema
    bare = {
        key: _bare(value)
        for key, value in schema.items()
        if key not in _WORDS or isinstance(value, dict)
    }
    if fields and isinstance(bare["properties"], dict):
        bare["properties"] = dict(sorted(bare["properties"].items()))
    return bare


def test_keys_types_bounds_and_defaults_are_those_that_were_promised() -> None:
    golden = json.loads(GOLDEN.read_text("utf-8"))
    now = configuration()
    assert now.keys() == golden.keys()
    for name, schema in now.items():
        assert schema == golden[name], f"the configuration of {name} has changed"


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(configuration(), indent=1, sort_keys=True) + "\n", "utf-8")
