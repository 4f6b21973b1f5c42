"""Agreement of a model as judge with hand labels, on answers in all declared languages.

    python bench/judge_agreement.py --base-url http://127.0.0.1:8000/v1 [--model NAME] [--each 6]
    python bench/judge_agreement.py --scripted   # a server that knows the labels: proves the way

The answers and labels are those of tests/support/answers.py: a complaint is -1, praise +1, a new
request 0 or +1. Prints one line a language, then all.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import defaultdict

from clawrl_gym.config import ServeConfig
from clawrl_gym.config.compose import compose
from clawrl_gym.judge.model import ModelJudge
from clawrl_gym.judge.models.chat_models import HttpChatModel
from clawrl_gym.judge.models.endpoint import JudgeEndpoint
from clawrl_gym.judge.verdicts import VerdictMaker
from tests.support.answers import LANGUAGES, answers
from tests.support.fakes_judge import a_turn, completion, judge_server, reply, user
from tools.complaints.recipe import Answer

LABELS = {"complaint": (-1,), "praise": (1,), "neutral": (0, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--base-url", help="URL of an OpenAI-compatible server")
    parser.add_argument("--model", help="default: the server's first model")
    parser.add_argument("--each", type=int, default=6, help="answers of each kind and language")
    parser.add_argument("--scripted", action="store_true", help="a server of its own")
    args = parser.parse_args()
    if bool(args.base_url) == args.scripted:
        parser.error("expected either --base-url URL or --scripted")
    cases = labelled(args.each)
    if args.scripted:
        asyncio.run(_scripted(cases))
    else:
        asyncio.run(_measured(cases, JudgeEndpoint(args.base_url, None, 120.0, 24), args.model))


def labelled(each: int) -> list[Answer]:
    """The first answers of each kind in each language."""
    return [
        answer
        for code in LANGUAGES
        for kind in LABELS
        for answer in [a for a in answers(code, "check") if a.kind == kind][:each]
    ]


async def _scripted(cases: list[Answer]) -> None:
    async with judge_server() as (server, endpoint):

        def vote(at: int) -> object:
            quoted = str(server.requests[at][1]["messages"][-1]["content"])
            said = quoted.rsplit("<next_state", 1)[1].partition("\n")[2].rpartition("\n")[0]
            value = next(LABELS[case.kind][0] for case in cases if case.text == said)
            return completion(f"It says so. \\boxed{{{value}}}")

        server.answer = vote
        await _measured(cases, endpoint, None)


async def _measured(cases: list[Answer], endpoint: JudgeEndpoint, model: str | None) -> None:
    config = compose("serve", ["judge=model"], ServeConfig).judge
    maker = VerdictMaker(ModelJudge(HttpChatModel(endpoint, model), config), config)
    try:
        verdicts = await asyncio.gather(
            *(
                maker.verdict(a_turn(id=at, reply=reply("Here you are.")), [user(case.text)])
                for at, case in enumerate(cases, start=1)
            )
        )
    finally:
        await endpoint.close()
    right: dict[str, list[bool]] = defaultdict(list)
    for case, verdict in zip(cases, verdicts, strict=True):
        right[case.language].append(verdict.value in LABELS[case.kind])
    right["all"] = [agrees for agreements in right.values() for agrees in agreements]
    for name, agreements in right.items():
        print(f"{name:<4}{len(agreements):>5} cases{sum(agreements) / len(agreements):>8.1%}")


if __name__ == "__main__":
    main()
