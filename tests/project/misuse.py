"""Kinds of misuse, and what a command says of each before it starts anything."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from clawrl_gym.core.files.files import link_or_copy
from clawrl_gym.inference.models.shipped import shipped_dir


@dataclass(frozen=True, slots=True)
class Misuse:
    """A command line that is refused; {place} is a folder as `places` makes it, {port} is taken."""

    command: str
    arguments: str
    """Arguments of the command, separated by spaces."""
    says: str
    """A regular expression that is found in one of the lines of the refusal."""


TABLE = (
    # the model
    Misuse("train", "policy.model={place}/nothing", r"there is no 'nothing' in the folder"),
    Misuse("train", "policy.model=nobody", r"not a folder here .* and not an id like"),
    Misuse("evaluate", "policy.model={place}/empty", r"has no config.json"),
    Misuse("serve", "policy.model={place}/a_file", r"is a file but not GGUF .*: give the folder"),
    Misuse("train", "policy.model={place}/several", r"holds 2 GGUF files \(a.gguf, b.gguf\)"),
    Misuse(
        "serve", "policy.model={place}/part-00001-of-00002.gguf", r"is one part of 2, .*--merge"
    ),
    Misuse(
        "train", "policy.model={place}/no.gguf", r"cannot be read .* expected a whole GGUF file"
    ),
    Misuse("serve", "policy.model={place}/endless", r"would never end: .*'<\|im_end\|>', and vLLM"),
    Misuse(
        "train", "env=toolcall policy.model={place}/no_tools", r"shows it none: take agent.protocol"
    ),
    Misuse(
        "train",
        "env=[terminal,toolcall] policy.model={place}/no_tools",
        r"shows it none: take mixture.toolcall.agent.protocol=text",
    ),
    Misuse("evaluate", "env=toolcall policy.model={place}/no_tools", r"template shows it none"),
    Misuse("evaluate", "env=toolcall policy.tool_parser=null", r"by which no call is read"),
    Misuse("train", "policy.model={place}/no_system", r"template takes none: take agent.system=''"),
    Misuse("train", "policy.model={place}/no_weights", r"has no \*\.safetensors file"),
    Misuse("train", "policy.model={place}/cut_off", r"is cut off: got \d+ bytes, expected \d+"),
    Misuse("train", "policy.model={place}/no_shard", r"lacks 1 of its 2 files with weights"),
    Misuse("train", "policy.model={place}/no_tokenizer", r"has no tokenizer"),
    Misuse("serve", "policy.model={place}/no_template", r"has no chat template"),
    Misuse("train", "policy.model={place}/bert", r"is a BertModel, which vLLM cannot serve"),
    Misuse("train", "policy.model={place}/quantized", r"quantized weights, which the learner can"),
    Misuse("train", "policy.model={place}/other_weights", r"are not those of its config.json"),
    Misuse("train", "policy.model={place}/huge", r"GiB.*expected.*GiB"),
    Misuse("evaluate", "policy.model=some/model", r"not in the local cache .*HF_HUB_OFFLINE"),
    Misuse("train", "policy.max_model_len=99999999", r"longer than the \d+ tokens that the model"),
    Misuse("train", "policy.sampling.max_tokens=4096", r"expected room for a prompt"),
    Misuse("serve", "policy.tool_parser=hermess", r"got policy.tool_parser='hermess', expected on"),
    Misuse("train", "policy.device={other_device}", r"the installed vLLM is built for"),
    Misuse("train", "learner=lora learner.adapter.modules=[query]", r"with query, expected linear"),
    Misuse("serve", "learner=lora learner.adapter.rank=0", r"learner\.adapter\.rank"),
    Misuse("train", "learner.base=nf4", r"learner\.base=nf4 with a learner that trains all"),
    Misuse("serve", "learner=full learner.base=float32", r"learner\.base=float32 with a learner"),
    Misuse("train", "policy.serve=adapters", r"policy\.serve=adapters with a learner that trains"),
    Misuse(
        "train",
        "learner=lora policy.serve=adapters learner.adapter.rank=600",
        r"rank=600, expected",
    ),
    Misuse(
        "serve",
        "learner=lora policy.serve=adapters policy.placement=nodes",
        r"policy\.serve=adapters with policy\.placement=nodes, expected policy\.placement=driver",
    ),
    # the environment and its tasks
    Misuse("train", "env.tasks={place}/nothing", r"there is no folder"),
    Misuse("train", "env=swe sandbox=bubblewrap env.instances={place}/x.jsonl", r"x\.jsonl"),
    Misuse("train", "env=dataset", r"got env=dataset without data, expected env\.data=FILE"),
    Misuse("evaluate", "env=dataset env.data={place}/nothing.jsonl", r"expected a file \(cannot"),
    Misuse(
        "train",
        "env=dataset env.data={place}/rows.jsonl env.reward=json:dumps",
        r"whose parameter 'obj' is no column of .*rows\.jsonl, expected parameters among",
    ),
    Misuse(
        "train",
        "env=dataset env.data={place}/rows.jsonl rollout.group_size=1 "
        "env.reward=[exact,{{use:judge,criterion:x}}]",
        r"rollout\.group_size=1, expected at least 2",
    ),
    Misuse(
        "evaluate", "env=toolcall env.families=[nope]", r"got env.families=\['nope'\], expected"
    ),
    Misuse(
        "train", "env=toolcall env.tasks=composed env.families=[shop]", r"expected some of: cha"
    ),
    Misuse("train", "env=toolcall_composed env.families=[restock]", r"all are held out; expected"),
    Misuse("train", "env=gui_composed env.families=[unwind]", r"all are held out; expected"),
    Misuse(
        "train",
        "env=swe_composed sandbox=bubblewrap env.families=[backlog]",
        r"all are held out; expected",
    ),
    Misuse(
        "train",
        "env=swe_composed sandbox=bubblewrap env.heldout=corpus",
        r"held-out tasks of its own",
    ),
    Misuse("train", "env=terminal_plain env.families=[three]", r"no training task .*all are held"),
    Misuse(
        "evaluate", "env=toolcall_composed env.families=[restock] split=train", r"no train task"
    ),
    Misuse(
        "train", "env=gui env.browser.executable={place}/chrome", r"/chrome', expected a program"
    ),
    Misuse("train", "env=gui env.observation=both env.browser.executable={place}/c", r"sees none"),
    Misuse("train", "env.target=no_such_module:Env", r"cannot import 'no_such_module'"),
    Misuse("train", "env.target=json:Env", r"module 'json' has no 'Env'"),
    Misuse("train", "env.id=Nope-v0", r"no environment is registered as 'Nope-v0'"),
    Misuse("train", "env.id=CartPole-v1", r"observation space Box.*expected one of text"),
    Misuse("train", "env=gym", r"got neither env.id nor env.target"),
    Misuse("train", "env=conversation env.persona=nobody", r"expected one of: student, teacher"),
    Misuse("train", "env=conversation env.user=model", r"no env.user_base_url"),
    Misuse("train", "env=toolcall env.mcp=[{{name:x,command:nope}}]", r"no program 'nope' in PATH"),
    Misuse("train", "sandbox=docker", r"/nowhere/docker\.sock"),
    Misuse("train", "env.sandbox.rootfs={place}/nothing", r"expected the folder of a root file"),
    Misuse("train", "env.kwargs={{a:1}}", r"'env.kwargs' of env=terminal; it is one of env=gym"),
    Misuse("evaluate", "eval.tasks=0", r"got no heldout task to measure"),
    Misuse("evaluate", "eval.also=[toolcall]", r"call evaluate once for each"),
    Misuse("train", "eval.also=[moon]", r"got env='moon', expected one of"),
    Misuse("train", "eval.also=[toolcall] eval.tasks=0", r"expected eval.tasks of at least 1"),
    Misuse("train", "eval.also=[toolcall] eval.ends=false", r"expected eval.ends=true"),
    Misuse("train", "control=irrelevant_hints", r"follows no hints, expected trainer=opd"),
    Misuse("train", "control=shuffled_rewards trainer=opd judge=rule", r"uses no reward"),
    # who judges, and what is learned
    Misuse("train", "trainer=opd", r"follows hints, with judge.type=none, which gives none"),
    Misuse("train", "trainer=hybrid judge=feedback", r"judge.type=feedback, which gives none"),
    Misuse("train", "trainer=opd judge=rule trainer.opd_weight=0", r"at least one term"),
    Misuse("train", "learner=simulated trainer=opd judge=rule", r"cannot run distillation_topk"),
    Misuse("train", "learner=simulated learner.publish=if_not_worse", r"take learner.publish=alw"),
    Misuse("train", "learner.publish=if_better", r"'always' or 'if_not_worse'"),
    Misuse("serve", "live.train_when=at_night", r"expected always, idle, or hours from one to an"),
    Misuse("train", "judge.type=rule", r"without rules.*choose them with judge=rule"),
    Misuse("train", "judge=model judge.base_url=http://127.0.0.1:9/v1", r"no server answers"),
    Misuse("train", "judge=no_such_module:Judge", r"cannot import 'no_such_module'"),
    Misuse("train", "trainer.algorithm=gpro", r"did you mean 'grpo'\?"),
    Misuse(
        "train",
        "trainer=opd judge=rule trainer.distillation.teacher={place}/nothing",
        r"trainer.distillation.teacher='.*/nothing': there is no",
    ),
    Misuse(
        "train",
        "trainer=opd judge=rule trainer.distillation.teacher={place}/other_tokens",
        r"the teacher '.*' has another vocabulary",
    ),
    Misuse("train", "loss=gspo", r"loss.type=gspo with trainer.minibatches=1, expected at least 2"),
    Misuse("train", "trainer.surrogate=gspo", r"loss.type=gspo with trainer.minibatches=1, expec"),
    Misuse("serve", "loss=sapo", r"take trainer.minibatches=2, or trainer.loss.type=ppo or dppo"),
    Misuse("train", "loss=dpo", r"got loss='dpo' \(did you mean 'dppo'\?\), expected one of"),
    Misuse("train", "trainer.loss=dppo", r"got trainer.loss='dppo', expected loss=dppo"),
    Misuse("train", "loss=dppo trainer.loss.options.threshold=0", r"options.threshold: got 0: .*0"),
    Misuse("train", "loss=dppo trainer.clip_low=0.1", r"options.clip_low'.*dppo takes divergence"),
    Misuse("train", "loss=sapo trainer.surrogate=ppo", r"surrogate=ppo and trainer.loss.type=sapo"),
    Misuse("train", "trainer.kl_correction=true", r"kl_coef=0, expected a KL term to correct"),
    Misuse(
        "train", "rollout.in_flight=500 rollout.envs_per_worker=200", r"at most the 200 episodes"
    ),
    Misuse("train", "rollout.in_flight=0", r"greater than or equal to 1"),
    Misuse("train", "trainer.minibatches=500", r"trainer.minibatches=500 of batches of 192"),
    Misuse("serve", "policy.placement=nodes", r"ray.address=local, expected the address of a clus"),
    Misuse("serve", "learner=lora learner.offload=true", r"offload=true with an adapter"),
    Misuse("train", "learner.base=nf8", r"learner\.base"),
    Misuse("train", "learner=lora learner.adapter.rank=0", r"learner\.adapter\.rank"),
    Misuse("train", "learner.placement=beside", r"expected policy.placement=nodes"),
    Misuse("train", "learner.placement=apart policy.device=cpu", r"apart and no GPU of this mach"),
    # who acts, and who is asked
    Misuse("train", "agent=harness agent.command=[no-such-program]", r"neither on PATH nor a file"),
    Misuse("train", "agent=cli", r"a program .command, folder. or a name with type=cli"),
    Misuse("train", "agent=cli agent.name=nobody", r"agent\.name"),
    Misuse("train", "env=toolcall agent=cli agent.command=[x]", r"whose sandbox can hold an agent"),
    Misuse("train", "agent=cli agent.command=[x] agent.folder={place}/nothing", r"that is there"),
    Misuse("evaluate", "endpoint.base_url=localhost:8000", r"expected an address with http://"),
    Misuse("evaluate", "endpoint.base_url=http://127.0.0.1:9/v1", r"no server answers"),
    # whose turns are judged again, and by whom
    # supervised learning: tests/run/test_sft.py has more
    Misuse("sft", "{place}/nothing.jsonl", r"which does not exist, expected a .jsonl"),
    Misuse("sft", "policy.model={place}/nothing", r"there is no 'nothing' in the folder"),
    Misuse("sft", "runs policy.device={other_device}", r"the installed vLLM is built for"),
    Misuse("sft", "demonstrations=3 env=terminal env.tasks={place}/nothing", r"there is no folder"),
    Misuse("sft", "runs trainer=opd", r"got trainer=, which sft does not have"),
    Misuse("rejudge", "judge=rule", r"got no run, expected its folder"),
    Misuse("rejudge", "{place}/nothing", r"holds no run \(.*no such folder\); expected the"),
    Misuse("rejudge", "{place}/run", r"expected a run's folder with a run.db"),
    Misuse("rejudge", "{place}/run {place}/nothing", r"expected one run"),
    Misuse("rejudge", "{place}/run judge=feedback", r"asks nobody, expected a judge"),
    Misuse("rejudge", "{place}/run judge=chain", r"no judge.base_url: no policy runs here"),
    Misuse(
        "rejudge",
        "{place}/run judge=model judge.base_url=http://127.0.0.1:9/v1",
        r"no server answers",
    ),
    Misuse("rejudge", "{place}/run judge.vote=3", r"did you mean 'judge.votes'\?"),
    Misuse("rejudge", "{place}/run env=gui", r"got env=, which rejudge does not have"),
    # addresses and folders
    Misuse("train", "gateway.host=0.0.0.0", r"no gateway.key, expected a key"),
    Misuse("serve", "gateway.port={port}", r"port \d+ is taken"),
    Misuse("evaluate", "policy.port={port}", r"another program has it"),
    Misuse("serve", "policy.port=8808 gateway.port=8808", r"among the engines' own ports"),
    Misuse("train", "run.dir={place}/run", r"holds a run already; resume it: resume="),
    Misuse("serve", "run.dir={place}/a_file/run", r"a_file is a file; choose another one: run.dir"),
    Misuse("train", "resume={place}/nothing", r"holds no run \(.*no such folder\); expected the"),
    Misuse("train", "resume={place}/run", r"has checkpoints and no run.db; restore"),
    Misuse("serve", "resume={place}/nothing", r"holds no run \(.*no such folder\); expected the"),
    Misuse("train", "learner.remote_checkpoints=nowhere://x", r"Protocol not known: nowhere"),
    Misuse("serve", "learner.remote_checkpoints={place}/a_file", r"where nothing can be written"),
    Misuse("train", "learner.remote_checkpoints=ftp://a:b@c/d", r"an address with a password"),
    Misuse("train", "logger=wandb", r"needs the package wandb, which is not installed"),
    # the command line
    Misuse("train", "seed=1,2", r"add --multirun"),
    Misuse("serve", "seed=1,2", r"call serve once for each"),
    Misuse("train", "--multirun trainer=opd,grpo", r"trainer=opd: .*follows hints"),
    Misuse("train", "env=[terminal,terminal]", r"with terminal twice, expected each name once"),
    Misuse("train", "env=[terminal,toolcall] mixture={{gui:1}}", r"got mixture.gui with env="),
    Misuse("train", "env=[terminal,toolcall] mixture.toolcall.weight=0", r"weight: got 0"),
    Misuse("train", "env=[terminal,gui] mixture.gui.env.observation=both", r"sees none: take mix"),
    Misuse("train", "env=[terminal,toolcall] trainer=opd", r"judge.type=none, which gives none"),
    Misuse("train", "env=[conversation,terminal] trainer=opd", r"nothing would be learned; choose"),
    Misuse("evaluate", "env=[terminal,toolcall]", r"call evaluate once for each"),
    Misuse("train", "learner.lrr=1", r"did you mean 'learner.lr'\?"),
    Misuse("serve", "env=gui", r"got env=, which serve does not have"),
    Misuse("bench", "experiment=personal_opd policy.model={place}/nothing", r"'personal_opd': pol"),
    Misuse("bench", "experiment=personal_opd seeds=0", r"seeds: got 0"),
)


@contextmanager
def places(folder: Path) -> Iterator[dict[str, str]]:
    """What the table's placeholders stand for: broken models, half a run, a port that is taken."""
    (folder / "empty").mkdir(parents=True)
    (folder / "a_file").write_text("no folder")
    (folder / "rows.jsonl").write_text('{"prompt": "a", "answer": 1}\n{"prompt": "b"}\n')
    (folder / "run" / "checkpoints" / "000003").mkdir(parents=True)
    (folder / "run" / "config.yaml").write_text("{}\n")
    _broken_models(folder)
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield {"place": str(folder), "port": str(server.getsockname()[1])}


def _broken_models(folder: Path) -> None:
    """Each is the shipped model with one thing wrong."""
    names = ("no_weights", "cut_off", "no_shard", "no_tokenizer", "no_template", "bert",
             "quantized", "other_weights", "other_tokens", "huge", "endless", "no_tools",
             "no_system")  # fmt: skip
    for name in names:
        (folder / name).mkdir()
        for source in shipped_dir("tiny").iterdir():
            link_or_copy(source, folder / name / source.name)
    (folder / "no_weights" / "model.safetensors").unlink()
    weights = (folder / "cut_off" / "model.safetensors").read_bytes()
    _replace(folder / "cut_off" / "model.safetensors", weights[:100_000])
    index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    _replace(folder / "no_shard" / "model.safetensors.index.json", json.dumps(index).encode())
    (folder / "no_tokenizer" / "tokenizer.json").unlink()
    (folder / "no_template" / "chat_template.jinja").unlink()
    _change(folder / "bert", architectures=["BertModel"], model_type="bert")
    _change(folder / "quantized", quantization_config={"quant_method": "gptq"})
    _change(folder / "other_weights", vocab_size=32)
    tokens = (folder / "other_tokens" / "tokenizer.json").read_text()
    changed = tokens.replace("<|im_start|>", "<|im_begin|>").encode()
    _replace(folder / "other_tokens" / "tokenizer.json", changed)
    _huge_weights(folder / "huge" / "model.safetensors")
    _replace(folder / "endless" / "generation_config.json", b'{"eos_token_id": 0}')
    settings = json.loads((folder / "endless" / "tokenizer_config.json").read_text())
    settings |= {"eos_token": "<|endoftext|>"}
    _replace(folder / "endless" / "tokenizer_config.json", json.dumps(settings).encode())
    chat = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    )
    _replace(folder / "no_tools" / "chat_template.jinja", chat.encode())
    refusing = "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}"
    _replace(folder / "no_system" / "chat_template.jinja", (refusing + chat).encode())
    (folder / "several").mkdir()
    for name in ("several/a.gguf", "several/b.gguf", "part-00001-of-00002.gguf", "no.gguf"):
        (folder / name).write_bytes(b"GGUF")


def _change(model: Path, **values: object) -> None:
    file = model / "config.json"
    _replace(file, json.dumps(json.loads(file.read_text()) | values).encode())


def _replace(file: Path, content: bytes) -> None:
    """In place of a link to the shipped file."""
    file.unlink(missing_ok=True)
    file.write_bytes(content)


def _huge_weights(file: Path) -> None:
    """Write weights of 40 billion parameters; a hole in the file takes their place."""
    size = 80_000_000_000
    tensors = {"w": {"dtype": "BF16", "shape": [size // 2], "data_offsets": [0, size]}}
    header = json.dumps(tensors).encode()
    _replace(file, struct.pack("<Q", len(header)) + header)
    with file.open("r+b") as stream:
        stream.truncate(8 + len(header) + size)
