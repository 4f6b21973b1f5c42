"""Families about structured data and programs: json, csv, environ, script, git."""

from __future__ import annotations

import hashlib
import json as json_format
import zlib

from clawrl_gym.envs.draw import STEMS, WORDS, Draw, text
from clawrl_gym.envs.showcase.terminal.families.family import TaskContent
from clawrl_gym.envs.terminal.checks import CommitHolds, FileIs, ModeIs

VARIABLES = (
    "ACCOUNT", "CITY", "COLOR", "COUNTRY", "DOMAIN", "LEVEL", "MODEL", "OWNER",
    "PLANET", "PROJECT", "REGION", "SEASON", "SECRET", "STAGE", "TEAM", "TOKEN",
)  # fmt: skip


def json(draw: Draw) -> TaskContent:
    stem, target_stem = draw.some(STEMS, 2)
    source, target = f"{stem}.json", f"{target_stem}.txt"
    words = draw.some(WORDS, 8)
    record = {words[i]: f"{words[i + 4]}{draw.between(10, 99)}" for i in range(4)}
    key = draw.pick(words[:4])
    template = draw.pick(("Write the value of {k} in {a} to {b}.", "Put the {k} of {a} into {b}."))
    return TaskContent(
        instruction=template.format(k=key, a=source, b=target),
        solution=(f'grep {key} {source} | cut -d\\" -f4 > {target}',),
        checks=(FileIs(target, record[key].encode()),),
        files={source: json_format.dumps(record, indent=2).encode() + b"\n"},
    )


def csv(draw: Draw) -> TaskContent:
    stem, target_stem = draw.some(STEMS, 2)
    source, target = f"{stem}.csv", f"{target_stem}.txt"
    rows = [draw.some(WORDS, 5) for _ in range(draw.between(3, 6))]
    column = draw.between(1, 5)
    template = draw.pick(("Write column {n} of {a} to {b}.", "Cut column {n} out of {a} into {b}."))
    return TaskContent(
        instruction=template.format(n=column, a=source, b=target),
        solution=(f"cut -d, -f{column} {source} > {target}",),
        checks=(FileIs(target, text([row[column - 1] for row in rows])),),
        files={source: text([",".join(row) for row in rows])},
    )


def environ(draw: Draw) -> TaskContent:
    target = draw.name()
    names = draw.some(VARIABLES, 3)
    env = {name: f"{draw.pick(WORDS)}{draw.between(10, 99)}" for name in names}
    template = draw.pick(("Write the variable {v} to {b}.", "Save the value of ${v} in {b}."))
    return TaskContent(
        instruction=template.format(v=names[0], b=target),
        solution=(f"echo ${names[0]} > {target}",),
        checks=(FileIs(target, env[names[0]].encode()),),
        env=env,
    )


def script(draw: Draw) -> TaskContent:
    name = f"{draw.pick(STEMS)}.sh"
    word = " ".join(draw.some(WORDS, draw.between(1, 2)))
    template = draw.pick(
        ("Write an executable script {a} that prints {w}.", "Make the script {a} that says {w}.")
    )
    return TaskContent(
        instruction=template.format(a=name, w=word),
        solution=(f"echo echo {word} > {name} && chmod +x {name}",),
        checks=(ModeIs(name, 0o100, mask=0o100),),
        grader=f'[[ "$(./{name})" == "{word}" ]]',
    )


def git(draw: Draw) -> TaskContent:
    committed, name = draw.names(2)
    message = draw.pick(WORDS)
    content = text(draw.lines(1, 3))
    repository, tip = _repository(committed, text(draw.lines(1, 3)))
    kind = draw.pick(("branch", "tag", "commit"))
    if kind == "commit":
        template = draw.pick(
            ("Commit {a} to git with the message {w}.", "Add {a} to git and commit it as {w}.")
        )
        return TaskContent(
            instruction=template.format(a=name, w=message),
            solution=(f"git add {name} && git commit -qm {message}",),
            checks=(CommitHolds(".", "main", message, name, _object_id("blob", content)),),
            files={**repository, name: content},
        )
    template = draw.pick(("Make the git {k} {w}.", "Create a git {k} called {w}."))
    ref = "heads" if kind == "branch" else "tags"
    return TaskContent(
        instruction=template.format(k=kind, w=message),
        solution=(f"git {kind} {message}",),
        checks=(FileIs(f".git/refs/{ref}/{message}", tip.encode()),),
        files=repository,
    )


def _object_id(kind: str, body: bytes) -> str:
    return hashlib.sha1(f"{kind} {len(body)}\0".encode() + body, usedforsecurity=False).hexdigest()


def _repository(name: str, content: bytes) -> tuple[dict[str, bytes], str]:
    """The files of a repository with one commit on `main`, and the commit's id."""
    blob = _object_id("blob", content)
    tree = f"100644 {name}\0".encode() + bytes.fromhex(blob)
    author = "owner <owner@localhost> 1700000000 +0000"
    commit = (
        f"tree {_object_id('tree', tree)}\nauthor {author}\ncommitter {author}\n\nfirst\n".encode()
    )
    files = {
        name: content,
        ".git/HEAD": b"ref: refs/heads/main\n",
        ".git/config": (
            b"[core]\n\trepositoryformatversion = 0\n\tbare = false\n"
            b"[user]\n\tname = owner\n\temail = owner@localhost\n[gc]\n\tauto = 0\n"
        ),
    }
    for kind, body in (("blob", content), ("tree", tree), ("commit", commit)):
        object_id = _object_id(kind, body)
        path = f".git/objects/{object_id[:2]}/{object_id[2:]}"
        files[path] = zlib.compress(f"{kind} {len(body)}\0".encode() + body)
    tip = _object_id("commit", commit)
    files[".git/refs/heads/main"] = f"{tip}\n".encode()
    return files, tip
