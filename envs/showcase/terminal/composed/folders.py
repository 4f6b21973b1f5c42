"""Skills on whole files, folders and archives."""

from __future__ import annotations

import posixpath

from clawrl_gym.envs.draw import STEMS, WORDS, Draw, text
from clawrl_gym.envs.phrasing import Phrasings
from clawrl_gym.envs.showcase.terminal.composed.skill import TEXTS, Args, Kind, Skill, fixed
from clawrl_gym.envs.showcase.terminal.composed.world import Refused, World
from clawrl_gym.envs.showcase.terminal.families.files import packed_tar
from clawrl_gym.envs.terminal.checks import tar_files

_FOLDER, _ARCHIVE = frozenset({Kind.FOLDER}), frozenset({Kind.ARCHIVE})
_FILE = TEXTS | {Kind.RECORD, Kind.VALUE}
MODES = ("600", "640", "660", "664", "700", "750", "755", "775")
"""All of them writable, so that what comes later can be done."""


def _copy(world: World, args: Args) -> None:
    if args["tool"] == "mv":
        world.move(args["a"], args["b"])
    else:
        world.write(args["b"], world.read(args["a"]))


def _mode(draw: Draw, world: World, args: Args) -> tuple[Args, Args]:
    one, other = draw.some(MODES, 2)
    return {"m": one}, {"m": other}


def _into_folder(draw: Draw, world: World, args: Args) -> tuple[Args, Args]:
    folder = posixpath.dirname(args["b"])
    return {"d": folder, "tool": "mv"}, {"tool": "cp"}


def _file_away(world: World, args: Args) -> None:
    world.add_folder(args["d"])
    _copy(world, args)


def _tree(world: World, args: Args) -> None:
    world.add_folder(args["b"])
    for name in args["names"].split():
        world.add_folder(f"{args['b']}/{name}")


def _branches(draw: Draw, world: World, args: Args) -> tuple[Args, Args]:
    x, y, z = draw.some(WORDS, 3)
    return (
        {"x": x, "y": y, "names": f"{x} {y}", "braces": f"{{{x},{y}}}"},
        {"names": f"{x} {z}", "braces": f"{{{x},{z}}}"},
    )


def _named_folder(world: World, args: Args) -> None:
    value = "" if args["inner"].endswith("-") else world.read(args["a"]).decode().strip()
    world.add_folder(f"{args['s']}-{value}")


def _stem(draw: Draw, world: World, args: Args) -> tuple[Args, Args] | None:
    content = world.read(args["a"]).decode().strip()
    if not content.isalnum():
        return None
    stem = draw.pick(STEMS)
    inner = f'{stem}-"$(cat {args["a"]})"'
    return {"s": stem, "inner": inner}, {"inner": f"{stem}-"}


def _endings(world: World, folder: str) -> list[str]:
    """Endings of a folder's files, in order."""
    return sorted({name.rpartition(".")[2] for name in world.names(folder)})


def _ending(draw: Draw, world: World, args: Args) -> tuple[Args, Args] | None:
    endings = _endings(world, args["a"])
    if len(endings) < 2:
        return None
    one, other = draw.some(endings, 2)
    return {"x": one}, {"x": other}


def _with_ending(world: World, args: Args) -> list[str]:
    names = [name for name in world.names(args["a"]) if name.endswith(f".{args['x']}")]
    if not names:
        raise Refused(f"{args['a']}/*.{args['x']}: No such file or directory")
    return names


def _delete_matching(world: World, args: Args) -> None:
    for name in _with_ending(world, args):
        world.remove(f"{args['a']}/{name}")


def _rename_matching(world: World, args: Args) -> None:
    for name in _with_ending(world, args):
        path = f"{args['a']}/{name}"
        target = f"{path.removesuffix(args['x'])}{args['y']}"
        _copy(world, {"a": path, "b": target, "tool": args["tool"]})


def _new_ending(draw: Draw, world: World, args: Args) -> tuple[Args, Args] | None:
    chosen = _ending(draw, world, args)
    if chosen is None:
        return None
    free = [e for e in ("old", "orig", "draft", "done") if e not in _endings(world, args["a"])]
    return {**chosen[0], "y": draw.pick(free), "tool": "mv"}, {"tool": "cp"}


def _gather(world: World, args: Args) -> None:
    names = _with_ending(world, args)
    world.add_folder(args["b"])
    for name in names:
        _copy(world, {**args, "a": f"{args['a']}/{name}", "b": f"{args['b']}/{name}"})


def _copied_ending(draw: Draw, world: World, args: Args) -> tuple[Args, Args] | None:
    chosen = _ending(draw, world, args)
    return None if chosen is None else ({**chosen[0], "tool": "cp"}, {"tool": "mv"})


def _concat(world: World, args: Args) -> None:
    names = _with_ending(world, args)
    world.write(args["b"], b"".join(world.read(f"{args['a']}/{name}") for name in names))


def _list(world: World, args: Args) -> None:
    names = world.names(args["a"])
    world.write(args["b"], text(names[::-1] if args["flag"] else names))


def _containing(world: World, args: Args) -> None:
    word = args["w"].encode()
    is_wanted = args["flag"] == "-l"
    names = [
        name
        for name in world.names(args["a"])
        if (word in world.read(f"{args['a']}/{name}")) is is_wanted
    ]
    world.write(args["b"], text(names))


def _shared_word(draw: Draw, world: World, args: Args) -> tuple[Args, Args] | None:
    contents = [world.read(f"{args['a']}/{name}").decode() for name in world.names(args["a"])]
    words = dict.fromkeys(word for content in contents for word in content.split())
    some = [w for w in words if 0 < sum(w in content for content in contents) < len(contents)]
    return ({"w": draw.pick(some), "flag": "-l"}, {"flag": "-L"}) if some else None


def _count_files(world: World, args: Args) -> None:
    count = len(world.names(args["a"])) + (args["tool"] == "find")
    world.write(args["b"], text([str(count)]))


def _largest(world: World, args: Args) -> None:
    names = world.names(args["a"])
    sizes = {name: len(world.read(f"{args['a']}/{name}")) for name in names}
    pick = min if args["flag"] else max
    world.write(args["b"], text([pick(sizes, key=lambda name: sizes[name])] if sizes else []))


def _distinct_sizes(draw: Draw, world: World, args: Args) -> tuple[Args, Args] | None:
    sizes = [len(world.read(f"{args['a']}/{name}")) for name in world.names(args["a"])]
    return ({"flag": ""}, {"flag": "r"}) if len(set(sizes)) == len(sizes) > 1 else None


def _pack(world: World, args: Args) -> None:
    paths = [f"{args['a']}/{name}" for name in world.names(args["a"])]
    world.write(args["b"], packed_tar({path: world.read(path) for path in paths}))
    if args["flag"]:
        for path in paths:
            world.remove(path)
        world.folders.discard(args["a"])


def _unpack(world: World, args: Args) -> None:
    contents = tar_files(world.read(args["a"])) or {}
    if args["flag"] == "xf":
        for path, content in contents.items():
            world.add(path, content)


FOLDER_SKILLS = (
    Skill(
        "copy", _FILE, Kind.LINES,
        Phrasings(
            (
                "copy {a} to {b}",
                "make a copy of {a} called {b}",
                "duplicate {a} as {b}",
                "keep a second copy of {a} under the name {b}",
            ),
            ("let {b} be an exact copy of {a}", "back {a} up as {b}"),
        ),
        "{tool} {a} {b}", _copy, fixed({"tool": "cp"}, {"tool": "mv"}), same=True,
    ),
    Skill(
        "move", _FILE, Kind.LINES,
        Phrasings(
            (
                "rename {a} to {b}",
                "move {a} to {b}",
                "give {a} the new name {b}",
                "change the name of {a} to {b}",
            ),
            ("let {a} be called {b} from now on", "{a} should bear the name {b}; rename it"),
        ),
        "{tool} {a} {b}", _copy, fixed({"tool": "mv"}, {"tool": "cp"}), keeps=False, same=True,
    ),
    Skill(
        "file_away", _FILE, Kind.LINES,
        Phrasings(
            (
                "make the folder {d} and move {a} into it",
                "put {a} away in a new folder {d}",
                "create a folder called {d} and let {a} move in there",
                "move {a} into a folder {d}, which you have to make",
            ),
            (
                "{a} belongs into a folder {d} of its own: make that and move it",
                "open a new folder {d} and shift {a} there",
            ),
        ),
        "mkdir {d} && {tool} {a} {d}", _file_away, _into_folder, keeps=False, same=True,
    ),
    Skill(
        "permissions", _FILE, None,
        Phrasings(
            (
                "set the mode of {a} to {m}",
                "change the permissions of {a} to {m}",
                "give {a} the permissions {m}",
                "chmod {a} to {m}",
            ),
            ("let the permission bits of {a} be {m}", "put {a} at mode {m}"),
        ),
        "chmod {m} {a}",
        lambda world, args: world.set_mode(args["a"], int(args["m"], 8)), _mode, hideable="m",
    ),
    Skill(
        "tree", frozenset(), Kind.EMPTY,
        Phrasings(
            (
                "make a folder {b} with two empty folders in it, {x} and {y}",
                "create the empty folders {b}/{x} and {b}/{y}",
                "set up a folder {b} that has the subfolders {x} and {y}",
                "make the folder {b}, and in it the folders {x} and {y}",
            ),
            (
                "lay out a new folder {b} with room for {x} and for {y}: an empty folder each",
                "let there be empty folders {x} and {y} below a new {b}",
            ),
        ),
        "mkdir -p {b}/{braces}", _tree, _branches,
    ),
    Skill(
        "folder_for", frozenset({Kind.VALUE}), None,
        Phrasings(
            (
                "make an empty folder whose name is {s}- followed by what {a} holds",
                "create a folder named {s}-X, where X stands for the content of {a}",
                "add an empty folder called {s}- plus the content of {a}",
                "make a folder {s}-X with the content of {a} in place of X",
            ),
            (
                "let an empty folder bear the name {s}- with the content of {a} attached",
                "name a new empty folder after {a}: {s}-, then what it holds",
            ),
        ),
        "mkdir {inner}", _named_folder, _stem,
    ),
    Skill(
        "list", _FOLDER, Kind.LINES,
        Phrasings(
            (
                "{put} the names of the files in {a} {into}, alphabetically, one a line",
                "list the files of {a} by name, one a line, in {b}",
                "{put} an alphabetical list of the file names in {a} {into}",
                "{put} the listing of {a}, names only and in alphabetical order, {into}",
            ),
            (
                "make {b} an alphabetical index of the file names of {a}, a line each",
                "note in {b}, line by line and alphabetically, how the files in {a} are called",
            ),
        ),
        "ls {flag}{a} > {b}", _list, fixed({"flag": ""}, {"flag": "-r "}),
    ),
    Skill(
        "containing", _FOLDER, Kind.LINES,
        Phrasings(
            (
                "{put} the names of the files in {a} that contain {w} {into} (alphabetically, "
                "without the folder)",
                "find out which files in {a} mention {w} and list their bare names, one a line and "
                "alphabetically, in {b}",
                "search the files of {a} for {w}; {put} the names of those that have it, without "
                "the folder and in alphabetical order, {into}",
                "list in {b} the file names (no folder, alphabetical) of {a} in which {w} occurs",
            ),
            (
                "make {b} an alphabetical list of the names, without folder, of those files of {a} "
                "that say {w}",
                "note in {b}, one a line and alphabetically, the bare names of all files in {a} "
                "with {w} in them",
            ),
        ),
        "(cd {a} && grep {flag} {w} *) > {b}", _containing, _shared_word, hideable="w",
    ),
    Skill(
        "delete_matching", _FOLDER, None,
        Phrasings(
            (
                "delete the .{x} files in {a}",
                "remove every file of {a} that ends in .{x}",
                "throw away all .{x} files of {a}, nothing else",
                "clear {a} of its .{x} files",
            ),
            (
                "{a} should have no .{x} files any more: delete them",
                "get rid of whatever ends in .{x} in {a}",
            ),
        ),
        "rm {a}/*.{x}", _delete_matching, _ending, hideable="x",
    ),
    Skill(
        "rename_matching", _FOLDER, None,
        Phrasings(
            (
                "rename the .{x} files in {a} so that they end in .{y} instead",
                "in {a}, change the ending of all .{x} files to .{y}",
                "turn every .{x} in the file names of {a} into .{y}",
                "give all .{x} files of {a} the ending .{y}",
            ),
            (
                "let each .{x} file of {a} end in .{y} from now on",
                "the .{x} files in {a} are to become .{y} files: rename them",
            ),
        ),
        'for f in {a}/*.{x}; do {tool} "$f" "${{f%.{x}}}.{y}"; done',
        _rename_matching, _new_ending,
    ),
    Skill(
        "gather", _FOLDER, Kind.FOLDER,
        Phrasings(
            (
                "make the folder {b} and copy the .{x} files of {a} into it",
                "copy all .{x} files from {a} to a new folder {b}",
                "collect copies of the .{x} files of {a} in a new folder called {b}",
                "create {b} and put a copy of each .{x} file of {a} there",
            ),
            (
                "let a new folder {b} hold copies of what ends in .{x} in {a}",
                "duplicate the .{x} files of {a} into {b}, a folder you make",
            ),
        ),
        "mkdir {b} && {tool} {a}/*.{x} {b}", _gather, _copied_ending, hideable="x",
    ),
    Skill(
        "concat", _FOLDER, Kind.LINES,
        Phrasings(
            (
                "{put} the contents of all .{x} files in {a}, in the order of their names, {into}",
                "join the .{x} files of {a} (alphabetically by name) and {put} the whole {into}",
                "concatenate the .{x} files of {a} by name into {b}",
                "collect the text of the .{x} files in {a}, one after another by name, in {b}",
            ),
            (
                "make {b} one long file out of the .{x} files of {a}, ordered by name",
                "string the .{x} files of {a} together, by name, and {put} the result {into}",
            ),
        ),
        "cat {a}/*.{x} > {b}", _concat, _ending, hideable="x",
    ),
    Skill(
        "count_files", _FOLDER, Kind.VALUE,
        Phrasings(
            (
                "{put} the number of files in {a} {into}",
                "count the files in {a} and {put} the number {into}",
                "find out how many files {a} holds, and {put} the number {into}",
                "{put} how many files are in {a} {into}",
            ),
            (
                "make {b} hold the count of files in {a}",
                "tell in {b}, as a bare number, how many files {a} has",
            ),
        ),
        "{tool} {a} | wc -l > {b}", _count_files, fixed({"tool": "ls"}, {"tool": "find"}),
    ),
    Skill(
        "largest", _FOLDER, Kind.VALUE,
        Phrasings(
            (
                "{put} the name of the largest file in {a} {into}, without the folder",
                "find the biggest file in {a} and {put} its bare name {into}",
                "look which file of {a} has the most bytes and {put} its name alone {into}",
                "{put} the bare name of the file in {a} that takes the most space {into}",
            ),
            (
                "make {b} say which file in {a} is the largest: its name, no folder",
                "{put} how the heaviest file in {a} is called (no folder) {into}",
            ),
        ),
        "ls -S{flag} {a} | head -n 1 > {b}", _largest, _distinct_sizes,
    ),
    Skill(
        "pack", _FOLDER, Kind.PACKED,
        Phrasings(
            (
                "pack the folder {a} into the archive {b}",
                "make a tar archive {b} of the folder {a}",
                "put the whole folder {a} into a tar file called {b}, and keep the folder",
                "archive {a}, the folder with its files, as {b}",
            ),
            (
                "let {b} be a tar archive of the folder {a}",
                "wrap the folder {a} up as the tar file {b} and leave it in place",
            ),
        ),
        "tar {flag}-cf {b} {a}", _pack, fixed({"flag": ""}, {"flag": "--remove-files "}),
    ),
    Skill(
        "unpack", _ARCHIVE, Kind.FOLDER,
        Phrasings(
            (
                "unpack {a} here; it holds the folder {b}",
                "extract the archive {a}, which has a folder {b} in it",
                "open the archive {a} and take out its folder {b}",
                "unpack {a} and you get a folder {b}",
            ),
            (
                "let the folder {b} come out of the archive {a}, which stays",
                "take what is in {a}, the folder {b}, out of it",
            ),
        ),
        "tar {flag} {a}", _unpack, fixed({"flag": "xf"}, {"flag": "tf"}),
    ),
)  # fmt: skip
