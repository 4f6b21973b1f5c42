"""Configuration of the policy: the model, the engines that serve it, the gateway in front."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from clawrl_gym.config.part import Part, Threads
from clawrl_gym.core.plugins import ENGINES


class SamplingConfig(Part):
    """Sampling of the policy during training."""

    temperature: float = Field(1.0, ge=0)
    top_p: float = Field(1.0, gt=0, le=1)
    max_tokens: int = Field(96, ge=1)
    """Longest reply in tokens."""


class ImagesConfig(Part):
    """Limits of pictures for a vision-language policy; other policies refuse them all."""

    max_count: int = Field(32, ge=1)
    """Most pictures in one request, its history included."""
    max_mb: float = Field(4.0, gt=0)
    """Most MB of one file."""
    max_pixels: int = Field(4_194_304, ge=1)
    """Width times height of one; larger ones are refused."""
    processor: dict[str, Any] = Field(default_factory=dict)
    """Options of the model's own image processor, for engine and learner alike."""


class PolicyConfig(Part):
    """The model and the engine that serves it."""

    engine: str = "vllm"
    """The engine: `vllm`; `openai`, a server of the OpenAI API elsewhere, to evaluate and to serve
    without learning; or a class of your own: package.module:Name."""
    options: dict[str, object] = Field(default_factory=dict)
    """Options of the engine, as its `Options` say: of `openai` base_url, key, model, ..."""
    model: str = "tiny"
    """`tiny`, or `tiny_skills`, both shipped; `smollm2`, from the package index; a folder, a run
    (runs/NAME is its newest checkpoint, runs/NAME/checkpoints/000050 one of them), a run's remote
    copy (`learner.remote_checkpoints`: s3://BUCKET/NAME), a GGUF file, a Hugging Face id, or a GGUF
    file there (ID/FILE.gguf)."""
    size: str = "tiny"
    """Option of conf/size/ that brought the settings which depend on the model's size: chosen by
    policy=, or by the number of parameters of `model`; size=NAME takes another one."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "float32"
    max_model_len: int = Field(2048, ge=128)
    """Context length in tokens."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    servers: int = Field(1, ge=1)
    """Engines with the same weights; a session stays on one (its prefix cache is there)."""
    placement: Literal["driver", "nodes"] = "driver"
    """On a cluster (`ray.address`): on the driver's machine; or on nodes with the resource
    `engine`, else with a GPU, one for each server."""
    port: int = Field(0, ge=0, le=65535)
    """The engine's port on loopback (the next ones for further servers); 0 takes free ones."""
    kv_cache_gb: float = Field(0.25, gt=0)
    """CPU build: memory of the key-value cache of each server."""
    gpu_memory_utilization: float = Field(0.45, gt=0, le=1)
    """CUDA build: the engine's share of the device; the rest is the learner's."""
    max_num_seqs: int = Field(128, ge=1)
    """Requests that an engine decodes together."""
    serve: Literal["auto", "weights", "adapters"] = "auto"
    """How trained weights of `learner=lora` reach the engines. `adapters`: each version beside the
    frozen weights, under a name of its own; a request keeps its version to its end and nobody
    pauses. `weights`: merged into one set of weights, which are swapped. `auto`: adapters on a GPU
    and where users have adapters of their own; weights on a CPU, where adapters halve the speed."""
    max_adapters: Literal["auto"] | Annotated[int, Field(ge=2)] = "auto"
    """serve=adapters: adapters that an engine answers with at a time, for which it keeps memory;
    requests for further ones wait inside until all replies with another one have ended. `auto`: one
    for each user that there is when `serve` begins and 3 for the run's own and for versions that
    end; 32 at most."""
    threads: Threads = 1
    """CPU build: OpenMP threads of each server's engine. `auto`: half of its machine's cores,
    shared among the servers; the learner has the other half. With rollout=sync, in evaluate, and
    with `all`, each has all of them."""
    enforce_eager: bool | None = None
    """Skip compilation and CUDA graphs: starts sooner, decodes slower. None: a run on a GPU
    compiles where its length pays that back, and says so; a CPU never does."""
    start_timeout_s: float = Field(900.0, gt=0)
    request_timeout_s: float = Field(120.0, gt=0)
    max_restarts: int = Field(2, ge=0)
    """Restarts in a row of an engine that died; forgotten after five good minutes."""
    tool_parser: str | None = "hermes"
    """The engine's tool-call parser, of `vllm` one of its own; None switches tool calls off."""
    reasoning_parser: str | None = None
    keep_thoughts: bool = True
    """Keep the thoughts of earlier replies in the prompt as they were sampled, where chat template
    or client would drop them: so turns extend each other and are trained as one sequence. Where
    that leaves no room for a whole reply (`max_model_len`), they are dropped once. False: they are
    dropped."""
    images: ImagesConfig = ImagesConfig()
    sampling: SamplingConfig = SamplingConfig()

    @model_validator(mode="before")
    @classmethod
    def _fits_its_class(cls, values: object) -> object:
        return ENGINES.with_options(values, "engine", "vllm")


class GatewayConfig(Part):
    """The HTTP server in front of the engines."""

    host: str = "127.0.0.1"
    port: int = Field(0, ge=0, le=65535)
    """Its port; 0 takes a free one."""
    key: str | None = None
    """API key; None makes a random one. Required when `host` is not loopback."""
    max_body_mb: float = Field(16.0, gt=0)
    """Most MB of a request. One of JSON may have less where the context is short: 1 MB, 32 bytes
    for each token of `policy.max_model_len`, and the pictures that are allowed."""
    max_waiting: int = Field(4096, ge=1)
    """Most requests in progress; more are answered 503 with Retry-After."""
    max_waiting_per_user: int = Field(64, ge=1)
    """The same for one user with a key of their own; the owner has no such limit."""
    max_running_per_user: int = Field(2, ge=1)
    """Requests of one user in the policy at once; their others wait, so that nobody's reply stands
    behind all that another user asks. The owner has no such limit."""
    body_timeout_s: float = Field(30.0, gt=0)
    """Seconds that a client may take to send its request."""
    max_requests_per_s: float | None = Field(None, gt=0)
    """Model requests per second, with bursts of some seconds; more are answered 429. None: any
    number. Owner and users have this rate each."""
    max_sessions: int = Field(100_000, ge=1)
    """Open sessions; a request that would begin another one is answered 429."""
    max_sessions_per_user: int = Field(1000, ge=1)
    """The same for one user with a key of their own; the owner has no such limit."""
    feedback_per_minute: int | None = Field(30, ge=0)
    """Posts of feedback that one user with a key of their own may make in a minute; more are
    answered 429 with Retry-After. None: any number; the owner has no such limit."""
    feedback_per_day: int | None = Field(500, ge=0)
    """The same per day (UTC)."""
    new_sessions_per_day: int | None = Field(2000, ge=0)
    """Sessions that one user with a key of their own may begin in a day (UTC); more are answered
    429. None: any number; the owner has no such limit."""
    deletions_per_minute: int | None = Field(60, ge=0)
    """Sessions that one user with a key of their own may delete in a minute. None: any number; the
    owner has no such limit."""
