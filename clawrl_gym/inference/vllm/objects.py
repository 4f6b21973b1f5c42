"""vLLM's own objects, as our code inside its process takes them.

vLLM is not installed where types are checked, so each of them is Any; the names say which of its
classes is meant.
"""

from __future__ import annotations

from typing import Any, TypeAlias

ServerState: TypeAlias = Any
"""The state of its API server in `app.state`."""
OnlineRenderer: TypeAlias = Any
ChatCompletionRequest: TypeAlias = Any
GenerateRequest: TypeAlias = Any
MultiModalInput: TypeAlias = Any
PlaceholderRange: TypeAlias = Any
Parser: TypeAlias = Any
DeltaMessage: TypeAlias = Any
FunctionCall: TypeAlias = Any
RequestOutput: TypeAlias = Any
CompletionOutput: TypeAlias = Any
EngineOutputs: TypeAlias = Any
"""An asynchronous generator of RequestOutput, or an ErrorResponse."""
Request: TypeAlias = Any
"""Starlette's, which comes with vLLM."""
EngineRequest: TypeAlias = Any
"""A request as its scheduler keeps it."""
OutputProcessor: TypeAlias = Any
SampleLogprobs: TypeAlias = Any
IncrementalDetokenizer: TypeAlias = Any
VllmTokenizer: TypeAlias = Any
Worker: TypeAlias = Any
SchedulerOutput: TypeAlias = Any
VllmConfig: TypeAlias = Any
