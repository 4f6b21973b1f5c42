"""Where instances come from, and which of them are held out.

Train and held-out share no instance, by id and by content. SWE-bench Verified is a benchmark: its
instances, known by their ids or their commits whatever file they are in, are held out unless
training on them was asked for. A row that cannot be run or graded is left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from clawrl_gym.core.errors import ConfigError, TaskError
from clawrl_gym.core.types import Split
from clawrl_gym.envs.selection import LeftOut, Selection, select, selection_of
from clawrl_gym.envs.shipped_tasks import shipped
from clawrl_gym.envs.swe.config import SweEnvConfig
from clawrl_gym.envs.swe.rows.instance import Instance
from clawrl_gym.envs.swe.rows.loader import Rows, is_packed, read_rows
from clawrl_gym.envs.swe.rows.logs import parser_registry
from clawrl_gym.envs.swe.rows.row import Row, RowDefaults, instance_of, repository_of
from clawrl_gym.envs.task_source import TaskSource
from clawrl_gym.envs.verified import held_out_note, verified_row

CORPUS = "corpus"
EASY = "easy"
"""The corpus's repositories that the tiny policy can learn."""
COMPOSED = "composed"
"""Several things to mend in one repository of the corpus."""
_SHIPPED = frozenset((CORPUS, EASY, COMPOSED))
HELDOUT_SHARE = 5
"""One instance in about this many is held out when nothing says which."""


def open_source(config: SweEnvConfig) -> TaskSource[Instance]:
    """Where the configured instances come from.

    Raises ConfigError for a place that is none, TaskError for one of which nothing can be used.
    """
    train, heldout = config.instances or CORPUS, config.heldout
    families: Sequence[str] | None = config.families
    if train == EASY:
        train, families = CORPUS, shipped("swe.choice:corpus_families")(config)
    if COMPOSED in (train, heldout):
        return _composed(train, heldout, families)
    if families is not None and CORPUS not in (train, heldout):
        raise ConfigError(f"env.families chooses from the corpus, got env.instances={train!r}")
    if CORPUS in (train, heldout):
        return _with_corpus(train, heldout, families, config)
    train_rows = _usable_rows(train, config)
    heldout_rows = _usable_rows(heldout, config) if heldout is not None else None
    splits = _splits(train_rows, heldout_rows, config.train_on_verified, train)
    held_out = [] if config.train_on_verified or heldout_rows else _verified(train_rows.rows)
    return RowInstances(
        {**(heldout_rows.rows if heldout_rows else {}), **train_rows.rows},
        splits,
        _defaults(config),
        (*train_rows.left_out, *(heldout_rows.left_out if heldout_rows else ())),
        frozenset(held_out),
    )


def _usable_rows(where: str, config: SweEnvConfig) -> Rows:
    """The rows of a place that are instances. Raises as `open_source` does."""
    read = read_rows(where, config.hub_split or "test")
    defaults = _defaults(config)
    parsers = parser_registry().parsers  # where swebench is missing that is said now, and once
    if config.log_parser not in (None, *parsers):
        raise ConfigError(
            f"got env.log_parser={config.log_parser!r}, expected one of swebench's: "
            f"{', '.join(sorted(parsers))}"
        )
    names, left_out = select(read.rows.items(), lambda row: instance_of(row, "train", defaults))
    left_out = (*read.left_out, *left_out)
    Selection(len(names), left_out).require_some(where)
    splits = {name: read.splits[name] for name in names if name in read.splits}
    return Rows({name: read.rows[name] for name in names}, splits, left_out)


def runners_of_families(config: SweEnvConfig) -> Mapping[str, tuple[str, ...]]:
    """The shipped families that the options ask for, each with what runs its tests."""
    if not _SHIPPED & {config.instances or CORPUS, config.heldout}:
        return {}
    runners: Mapping[str, tuple[str, ...]] = shipped("swe.choice:runners_of_families")(config)
    return runners


def lives_in_images(config: SweEnvConfig) -> bool:
    """Whether any instance comes from a data set: those have images, others have files."""
    return any(not is_packed(place) for place in _places_of_rows(config))


def needs_of(config: SweEnvConfig) -> Mapping[str, str]:
    """Capabilities that the instances need of their sandboxes, each with the reason."""
    if not lives_in_images(config):
        return {}
    return {"images": "instances of data sets live in images (env.instances=corpus needs none)"}


def is_of_this_machine(config: SweEnvConfig) -> bool:
    """Whether instances are packed repositories, which run with a Python of this machine."""
    return any(is_packed(place) for place in _places_of_rows(config))


def _places_of_rows(config: SweEnvConfig) -> set[str]:
    return {config.instances or CORPUS, config.heldout or CORPUS} - _SHIPPED


@dataclass(frozen=True, slots=True)
class RowInstances:
    """Instances made of rows that can be used, each when it is asked for."""

    rows: Mapping[str, Row]
    splits: Mapping[str, Split]
    defaults: RowDefaults
    left_out: tuple[LeftOut, ...] = ()
    held_out: frozenset[str] = frozenset()
    """Instances of SWE-bench Verified that would be trained on otherwise."""

    @property
    def selection(self) -> Selection:
        notes = held_out_note(self.held_out, len(self.rows))
        return Selection(len(self.rows), self.left_out, notes=notes)

    def ids(self, split: Split) -> Sequence[str]:
        return sorted(name for name, row_split in self.splits.items() if row_split == split)

    def load(self, instance_id: str) -> Instance:
        if instance_id not in self.rows:
            if (reason := self.selection.reason_of(instance_id)) is not None:
                raise TaskError(f"instance {instance_id!r} cannot be used here: {reason}")
            raise TaskError(
                f"got instance {instance_id!r}, expected one of {len(self.rows)}, "
                f"such as {sorted(self.rows)[:5]}"
            )
        return instance_of(self.rows[instance_id], self.splits[instance_id], self.defaults)


@dataclass(frozen=True, slots=True)
class _SourcePerSplit:
    """One source for each split."""

    train: TaskSource[Instance]
    heldout: TaskSource[Instance]

    @property
    def selection(self) -> Selection:
        """Selection of the rows: the corpus is used whole."""
        return selection_of(self.train) or selection_of(self.heldout) or Selection(0)

    def ids(self, split: Split) -> Sequence[str]:
        return (self.train if split == "train" else self.heldout).ids(split)

    def load(self, instance_id: str) -> Instance:
        rows = self.train if isinstance(self.train, RowInstances) else self.heldout
        corpus = self.heldout if rows is self.train else self.train
        is_row = isinstance(rows, RowInstances) and instance_id in rows.rows
        return (rows if is_row else corpus).load(instance_id)


def _composed(
    train: str, heldout: str | None, families: Sequence[str] | None
) -> TaskSource[Instance]:
    if train != COMPOSED or heldout not in (None, COMPOSED):
        raise ConfigError(
            f"got env.instances={train!r} with env.heldout={heldout!r}, expected {COMPOSED!r} "
            "alone: it brings held-out tasks of its own"
        )
    source: TaskSource[Instance] = shipped("swe.composed.generated:composed_instances")(families)
    return source


def _with_corpus(
    train: str, heldout: str | None, families: Sequence[str] | None, config: SweEnvConfig
) -> TaskSource[Instance]:
    corpus: TaskSource[Instance] = shipped("swe.corpus:corpus_instances")(families)
    rows_place = heldout if train == CORPUS else train
    if rows_place in (None, CORPUS):
        return corpus
    place_rows = _usable_rows(rows_place, config)
    split: Split = "heldout" if train == CORPUS else "train"
    if split == "train":
        _refuse_verified(place_rows.rows, config.train_on_verified, rows_place)
    rows = RowInstances(
        place_rows.rows, _all(place_rows.rows, split), _defaults(config), place_rows.left_out
    )
    return _SourcePerSplit(corpus, rows) if split == "heldout" else _SourcePerSplit(rows, corpus)


def _defaults(config: SweEnvConfig) -> RowDefaults:
    return RowDefaults(config.log_parser, config.test_command)


def _splits(
    train_rows: Rows, heldout_rows: Rows | None, train_on_verified: bool, where: str
) -> Mapping[str, Split]:
    if heldout_rows is not None:
        _refuse_verified(train_rows.rows, train_on_verified, where)
        _refuse_shared(train_rows.rows, heldout_rows.rows)
        return {**_all(train_rows.rows, "train"), **_all(heldout_rows.rows, "heldout")}
    verified = frozenset() if train_on_verified else frozenset(_verified(train_rows.rows))
    if len(verified) == len(train_rows.rows):
        _refuse_verified(train_rows.rows, train_on_verified, where)
    if train_rows.splits:
        splits = {**train_rows.splits, **_all(verified, "heldout")}
        _refuse_shared(
            *(
                {name: train_rows.rows[name] for name in splits if splits[name] == split}
                for split in ("train", "heldout")
            )
        )
        return splits
    return _split_by_content(train_rows.rows, verified)


def _all(names: Iterable[str], split: Split) -> dict[str, Split]:
    return dict.fromkeys(names, split)


def _verified(rows: Mapping[str, Row]) -> list[str]:
    return [name for name, row in rows.items() if verified_row(row) is not None]


def _refuse_verified(rows: Mapping[str, Row], allowed: bool, where: str) -> None:
    verified_names = [] if allowed else _verified(rows)
    if verified_names:
        raise ConfigError(
            f"{len(verified_names)} of the {len(rows)} instances of {where!r} are SWE-bench "
            f"Verified's (such as {verified_names[0]!r}), a benchmark: give them as env.heldout, "
            "or set env.train_on_verified=true to train on them"
        )


def _refuse_shared(train: Mapping[str, Row], heldout: Mapping[str, Row]) -> None:
    train_contents = {key: name for name, row in train.items() for key in _contents(row)}
    for name, row in heldout.items():
        twin = (
            name
            if name in train
            else next((train_contents[k] for k in _contents(row) if k in train_contents), None)
        )
        if twin is not None:
            raise TaskError(
                f"the held-out instance {name!r} is the train instance {twin!r}: train and "
                "held-out must be disjoint; take it out of one of the two"
            )


def _contents(row: Row) -> list[str]:
    """Fields that make a row the same problem as another, whatever their ids."""
    repo = repository_of(row)
    fields = ("patch", "problem_statement")
    texts = ((field, "".join(str(row.get(field) or "").split())) for field in fields)
    return [_digest(f"{repo}\0{field}\0{text}") for field, text in texts if text]


def _split_by_content(rows: Mapping[str, Row], heldout: Iterable[str]) -> dict[str, Split]:
    """About one in five held out, by a hash; what is one problem stays together."""
    groups = _groups(rows)
    forced = frozenset(heldout)
    order = sorted(groups, key=_digest)
    out = {lead for lead in order if int(_digest(lead)[:8], 16) % HELDOUT_SHARE == 0}
    out |= {lead for lead in order if forced & set(groups[lead])}
    if len(order) > 1:
        out = out or {order[0]}
        if len(out) == len(order):
            free = [lead for lead in order if not forced & set(groups[lead])]
            out -= set(free[-1:])
    else:
        out = {lead for lead in order if forced & set(groups[lead])}
    return {
        name: "heldout" if lead in out else "train"
        for lead, names in groups.items()
        for name in names
    }


def _groups(rows: Mapping[str, Row]) -> dict[str, list[str]]:
    """Names of rows that are one problem, by the first of them."""
    leads: dict[str, str] = {}

    def lead_of(name: str) -> str:
        while leads[name] != name:
            name = leads[name]
        return name

    by_content: dict[str, str] = {}
    for name in sorted(rows):
        leads[name] = name
        for key in _contents(rows[name]):
            twin = lead_of(by_content.setdefault(key, name))
            first, second = sorted((twin, lead_of(name)))
            leads[second] = first
    groups: dict[str, list[str]] = {}
    for name in sorted(rows):
        groups.setdefault(lead_of(name), []).append(name)
    return groups


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()
