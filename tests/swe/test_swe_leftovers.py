"""A right fix counts beside what agents leave and what no patch of text files can hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawrl_gym.envs.swe.env import SweEnv
from clawrl_gym.envs.swe.grading import _failed
from clawrl_gym.envs.swe.patch import NotApplicable, PatchRefused
from clawrl_gym.envs.swe.patch_reader import parse_patch, read_patch
from tests.swe.test_swe_grading import GOLD, Openings, openings  # noqa: F401 (a fixture)
from tests.swe.test_swe_patch import ONE, changes, git, kept, repository  # noqa: F401 (a fixture)


def made(path: str, mode: str, content: str) -> str:
    """A file that git says to be new."""
    return (
        f"diff --git a/{path} b/{path}\nnew file mode {mode}\nindex 0000000..83db48f\n"
        f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+{content}\n\\ No newline at end of file\n"
    )


SUBMODULE = "Subproject commit 0123456789012345678901234567890123456789"
PICTURE = (
    "diff --git a/a.png b/a.png\nnew file mode 100644\nindex 0000000..83db48f\nGIT binary patch\n"
    "literal 13\nUcmZQzV3=@W0R}+G%*@Qj%*x6L05bp!\n\nliteral 0\nHcmV?d00001\n\n"
)
LEFTOVERS = {
    "a link": made("LINK", "120000", "README.md"),
    "a link out": made("LINK", "120000", "/etc/passwd"),
    "a link up": made("LINK", "120000", "../../etc"),
    "a link of an odd name": made("dir/with space", "120000", "x"),
    "a link that changes": "diff --git a/L b/L\nindex 83db48f..bf269f4 120000\n--- a/L\n+++ b/L\n"
    "@@ -1 +1 @@\n-a\n+b\n",
    "a link that goes": "diff --git a/L b/L\ndeleted file mode 120000\nindex 83db48f..0000000\n"
    "--- a/L\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n",
    "a file that becomes a link": "diff --git a/x b/x\nold mode 100644\nnew mode 120000\n"
    "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n",
    "a repository": made("tmp/sub", "160000", SUBMODULE),
    "a repository that moves on": "diff --git a/s b/s\nindex 83db48f..bf269f4 160000\n--- a/s\n"
    f"+++ b/s\n@@ -1 +1 @@\n-{SUBMODULE}\n+{SUBMODULE}\n",
    "a repository that goes": f"diff --git a/s b/s\ndeleted file mode 160000\n--- a/s\n"
    f"+++ /dev/null\n@@ -1 +0,0 @@\n-{SUBMODULE}\n",
    "a picture": PICTURE,
    "a picture that changes": "diff --git a/a.png b/a.png\nindex 83db48f..bf269f4 100644\n"
    "GIT binary patch\ndelta 5\nMcmZ3-\n\ndelta 5\nMcmZ3-\n\n",
    "binary files differ": "diff --git a/a.db b/a.db\nindex 83db48f..bf269f4 100644\n"
    "Binary files a/a.db and b/a.db differ\n",
    "a new binary file": "diff --git a/a.db b/a.db\nnew file mode 100644\nindex 0000000..bf269f4\n"
    "Binary files /dev/null and b/a.db differ\n",
    "binary files of diff": "diff -ru old/a.db new/a.db\n"
    "Binary files old/a.db and new/a.db differ\n",
    "only in a folder": "Only in new: a.log\n",
    "a name with a bell": made('"a/x\\007"', "100644", "x")
    .replace('a/"a', '"a')
    .replace('b/"a/', '"b/'),
    "a name with two lines": 'diff --git "a/x\\ny" "b/x\\ny"\nnew file mode 100644\n'
    '--- /dev/null\n+++ "b/x\\ny"\n@@ -0,0 +1 @@\n+x\n',
    "an empty file with a bell": 'diff --git "a/x\\007" "b/x\\007"\nnew file mode 100644\n',
    "a moved name with a bell": 'diff --git "a/x\\007" b/y\nsimilarity index 100%\n'
    'rename from "x\\007"\nrename to y\n',
    "a set-user file": made("tool", "104755", "x"),
    "a warning": "warning: adding embedded git repository: tmp/sub\nhint: You've added another\n",
}


@pytest.mark.parametrize("leftover", LEFTOVERS.values(), ids=list(LEFTOVERS))
@pytest.mark.parametrize("is_first", [True, False])
def test_what_cannot_be_applied_is_left_out_and_the_rest_is_read(
    leftover: str, is_first: bool
) -> None:
    patch = read_patch(leftover + ONE if is_first else ONE + leftover)
    assert patch.files == parse_patch(ONE).files
    is_named = not leftover.startswith(("Only in", "warning"))
    assert len(patch.left_out) == is_named
    assert kept(ONE, patch=leftover + ONE) == {"shop.py"}


@pytest.mark.parametrize("leftover", [LEFTOVERS["a link"], LEFTOVERS["a picture"]])
def test_the_tests_own_patch_is_still_read_strictly(leftover: str) -> None:
    with pytest.raises(NotApplicable):
        parse_patch(leftover + ONE)


def test_what_is_left_out_hides_nothing_that_follows() -> None:
    link = LEFTOVERS["a link"]
    hidden = changes("tests/test_a.py").split("\n", 1)[1]  # without a header of its own
    assert read_patch(link + hidden).paths == {"tests/test_a.py"}
    assert read_patch(PICTURE + hidden).paths == {"tests/test_a.py"}
    assert kept(ONE + hidden) == {"shop.py"}


EXPLOITS = {
    "up, beside a link": LEFTOVERS["a link"] + changes("../up.py"),
    "up, beside a picture": PICTURE + changes("a/../../up.py"),
    "git's own, beside a repository": LEFTOVERS["a repository"] + changes(".git/hooks/x"),
    "a link's hunk that does not end": LEFTOVERS["a link"].replace("+1 @@", "+1,9 @@"),
    "the same file twice": LEFTOVERS["a link"] + ONE + ONE,
    "a hunk of no file": PICTURE + "@@ -1 +1 @@\n-a\n+b\n",
    "prefixes that hide a way up": "diff --git i/../up.py w/../up.py\n--- i/../up.py\n"
    "+++ w/../up.py\n@@ -1 +1 @@\n-a\n+b\n",
    "a root behind a prefix": "diff --git a//etc/x b//etc/x\nnew file mode 100644\n--- /dev/null\n"
    "+++ b//etc/x\n@@ -0,0 +1 @@\n+x\n",
    "git's own behind a prefix": "diff --git i/.git/config w/.git/config\n--- i/.git/config\n"
    "+++ w/.git/config\n@@ -1 +1 @@\n-a\n+b\n",
    "one file in the header, one below": "diff --git a/a.py b/a.py\nnew file mode 100644\n"
    "--- /dev/null\n+++ b/tests/test_a.py\n@@ -0,0 +1 @@\n+x\n",
}


@pytest.mark.parametrize("exploit", EXPLOITS.values(), ids=list(EXPLOITS))
def test_what_leads_out_or_reads_in_two_ways_refuses_the_whole_patch(exploit: str) -> None:
    with pytest.raises(PatchRefused):
        read_patch(exploit)


MERGE = (
    "diff --cc conf.py\nindex 1234567,89abcde..0000000\n--- a/conf.py\n+++ b/conf.py\n"
    "@@@ -1,2 -1,2 +1,4 @@@\n++<<<<<<< HEAD\n +a\n++=======\n+ b\n  c\n"
)
UNSHOWN = {
    "a merge": MERGE,
    "a merge, combined": MERGE.replace("--cc", "--combined"),
    "a path without a resolution": "diff --git a/x.py b/x.py\n* Unmerged path x.py\n",
    "a deletion without contents": "diff --git a/x.py b/x.py\ndeleted file mode 100644\n"
    "index 1111111..0000000\n",
    "a binary file in German": "diff --git a/a.db b/a.db\nindex 1111111..2222222 100644\n"
    "Binärdateien a/a.db und b/a.db sind verschieden.\n",
    "a link in place of which a file comes": LEFTOVERS["a link that goes"]
    + "diff --git a/L b/L\nnew file mode 100644\n--- /dev/null\n+++ b/L\n@@ -0,0 +1 @@\n+x\n",
    "a log of submodules": "Submodule lib 1234567..89abcde:\n  > fix\n",
}


@pytest.mark.parametrize("unshown", UNSHOWN.values(), ids=list(UNSHOWN))
@pytest.mark.parametrize("is_first", [True, False])
def test_a_change_that_is_not_shown_costs_only_itself(unshown: str, is_first: bool) -> None:
    patch = read_patch(unshown + ONE if is_first else ONE + unshown)
    assert patch.files == parse_patch(ONE).files
    assert len(patch.left_out) == (not unshown.startswith("Submodule"))


def coloured(text: str) -> str:
    colours = {"diff": 1, "---": 1, "+++": 1, "@@": 36, "+": 32, "-": 31}
    lines = []
    for line in text.removesuffix("\n").split("\n"):
        colour = next((c for mark, c in colours.items() if line.startswith(mark)), 0)
        lines.append(f"\x1b[{colour}m{line}\x1b[m" if colour else line)
    return "\n".join(lines) + "\n"


FRAMES = {
    "colours": coloured(ONE),
    "an indentation": "".join(f"    {line}\n" for line in ONE.splitlines()),
    "a fence": f"Here it is:\n```diff\n{ONE}```\nDone.\n",
    "a mail": "From 1234 Mon Sep 17 00:00:00 2001\nSubject: [PATCH] fix\n\n---\n"
    f" shop.py | 2 +-\n\n{ONE}-- \n2.39.2\n\n",
    "svn": "Index: shop.py\n==========\n"
    + ONE.split("\n", 2)[2].replace("a/shop.py", "shop.py\t(revision 1)")
    .replace("b/shop.py", "shop.py\t(working copy)"),
    "hg": "# HG changeset patch\n# User a\ndiff -r 0 -r 1 shop.py\n"
    + ONE.split("\n", 2)[2].replace("/shop.py", "/shop.py\tThu Jan 01 00:00:00 1970 +0000"),
    "a warning": f"warning: in 'shop.py', LF will be replaced by CRLF\n{ONE}",
    "blanks behind names": ONE.replace("+++ b/shop.py", "+++ b/shop.py "),
    "a dot before names": ONE.replace("a/shop", "./shop").replace("b/shop", "./shop"),
    "a byte order mark": "\ufeffwords\n" + ONE,
}  # fmt: skip


@pytest.mark.parametrize("framed", FRAMES.values(), ids=list(FRAMES))
def test_what_stands_around_a_patch_changes_nothing(framed: str) -> None:
    patch = parse_patch(framed)
    assert patch.paths == {"shop.py"}
    assert patch.files[0].hunks == parse_patch(ONE).files[0].hunks


def test_folders_named_as_prefixes_are_kept_where_the_patch_has_none() -> None:
    plain = ONE.replace("a/shop", "shop").replace("b/shop", "shop")
    in_a = plain.replace("shop", "a/shop")
    in_b = plain.replace("shop", "b/shop")
    assert parse_patch(plain + in_a + in_b).paths == {"shop.py", "a/shop.py", "b/shop.py"}
    assert parse_patch(ONE + ONE.replace("a/shop", "a/a/shop").replace("b/shop", "b/a/shop")).paths


@pytest.mark.parametrize(
    ("mode", "kept"),
    [("100664", "100644"), ("100775", "100755"), ("100600", "100644"), ("100700", "100755")],
)
def test_modes_are_those_that_git_keeps(mode: str, kept: str) -> None:
    assert parse_patch(made("tool", mode, "x")).files[0].new_mode == kept


@pytest.mark.parametrize(
    "text", ["Fixed it.\n", "*** Begin Patch\n*** Update File: a.py\n@@\n-a\n"]
)
def test_a_text_without_any_change_is_named(text: str) -> None:
    assert read_patch(text).left_out == ("the text holds no change in the form of git diff",)
    assert read_patch(" \n").left_out == ()


def renamed(prefix: tuple[str, str]) -> str:
    old, new = prefix
    return ONE.replace("a/shop", f"{old}shop").replace("b/shop", f"{new}shop")


@pytest.mark.parametrize(
    "prefix",
    [("a/", "b/"), ("", ""), ("i/", "w/"), ("c/", "i/"), ("c/", "w/"), ("o/", "w/"), ("1/", "2/"),
     ("w/", "i/"), ("b/", "a/"), ("a/", "a/"), ("old/", "new/"), ("x/", "y/")],
)  # fmt: skip
@pytest.mark.parametrize("is_plain", [True, False])
def test_prefixes_of_any_kind_are_read(prefix: tuple[str, str], is_plain: bool) -> None:
    text = renamed(prefix)
    patch = parse_patch(text.split("\n", 2)[2] if is_plain else text)
    assert patch.paths == {"shop.py"}
    assert patch.files[0].hunks == parse_patch(ONE).files[0].hunks


def test_a_patch_whose_lines_all_end_as_those_of_windows_is_read() -> None:
    assert parse_patch(ONE.replace("\n", "\r\n")) == parse_patch(ONE)
    lines = ONE.split("\n")
    of_windows = "\n".join(line + "\r" if line[:1] in " +-" and at > 3 else line
                           for at, line in enumerate(lines))  # fmt: skip
    assert "-second\r\n" in parse_patch(of_windows).text, "the file's own line ends stay"


@pytest.mark.parametrize(
    "options",
    [[], ["--no-prefix"], ["--src-prefix=old/", "--dst-prefix=new/"], ["--binary"], ["-M"],
     ["-M", "--no-prefix"], ["--full-index"], ["-U0"], ["-R"], ["--irreversible-delete"]],
)  # fmt: skip
@pytest.mark.parametrize("mnemonic", [False, True])
def test_what_git_writes_in_any_form_means_the_same_beside_leftovers(
    options: list[str],
    mnemonic: bool,
    repository: Path,  # noqa: F811
) -> None:
    for name in ("plain.txt", "with space.txt", "ünï.txt", 'qu"ote.txt'):
        path = repository / name
        path.write_text(path.read_text().replace(" 3\n", " three\n"))
    (repository / "moved.txt").rename(repository / "there.txt")
    (repository / "run").chmod(0o755)
    (repository / "empty.txt").write_text("")
    git(repository, "add", "-A")
    wanted = git(repository, "write-tree")
    (repository / "LINK").symlink_to("/etc")
    (repository / "picture").write_bytes(bytes(range(256)))
    git(repository, "add", "-A")
    setting = ["-c", f"diff.mnemonicPrefix={str(mnemonic).lower()}"]
    is_reversed = "-R" in options
    diff = git(repository, *setting, "diff", "--cached", *options)
    patch = read_patch(diff)
    assert len(patch.left_out) == 2
    git(repository, "reset", "-q", "--hard")
    text = (patch.reversed() if is_reversed else patch).text
    unidiff = ["--unidiff-zero"] if "-U0" in options else []
    git(repository, "apply", "--index", *unidiff, "-", given=text)
    assert git(repository, "write-tree") == wanted


@pytest.mark.sandbox
@pytest.mark.parametrize("name", ["a link out", "a repository", "a picture", "binary files differ"])
def test_a_right_fix_beside_leftovers_earns_one_and_they_are_named(
    name: str,
    openings: Openings,  # noqa: F811
) -> None:
    graded = openings.grade(LEFTOVERS[name] + GOLD)
    assert graded.reward == 1.0
    assert graded.report.startswith("Test report: passed\n- left out: the patch ")
    wrong = openings.grade(LEFTOVERS[name] + GOLD.replace("+ $2", "* $2"))
    assert wrong.reward == 0.0
    assert "- left out: the patch" in wrong.report


@pytest.mark.sandbox
def test_leftovers_alone_are_a_grade_of_nothing(openings: Openings) -> None:  # noqa: F811
    graded = openings.grade("".join(LEFTOVERS.values()))
    assert (graded.reward, openings.opened) == (0.0, [])
    assert graded.report.startswith(_failed("nothing of the patch can be applied").report)


PASS_ALL = "+echo PASSED new; echo PASSED old; exit\n"


def cheat(path: str, old: str = "a/", new: str = "b/") -> str:
    """A file that says that all passed, in the place of another."""
    return (
        f"diff --git {old}{path} {new}{path}\nnew file mode 100644\n--- /dev/null\n"
        f"+++ {new}{path}\n@@ -0,0 +1 @@\n{PASS_ALL}"
    )


CHEATS = {
    "tests without prefixes": cheat("tests/new.sh", "", ""),
    "tests with other prefixes": cheat("tests/new.sh", "i/", "w/"),
    "tests in two folders": cheat("tests/new.sh", "x/", "tests/"),
    "tests in lines of Windows": cheat("tests/new.sh").replace("\n", "\r\n"),
    "tests after a link": LEFTOVERS["a link"] + cheat("tests/new.sh"),
    "tests after a picture, without a header": PICTURE + cheat("tests/new.sh").split("\n", 2)[2],
    "tests after a repository of that name": made("tests", "160000", SUBMODULE)
    + cheat("tests/new.sh"),
    "a link to tests of one's own": made("tests", "120000", "mine") + cheat("mine/new.sh"),
    "a link in the tests": made("tests/new.sh", "120000", "../mine.sh") + cheat("mine.sh"),
    "a link over the file": made("shop.sh", "120000", "mine.sh") + cheat("mine.sh"),
    "a link out, and a file below": made("out", "120000", "/tmp") + cheat("out/new.sh"),
    "the runner renamed over": "diff --git i/shop.sh w/tests/new.sh\nrename from shop.sh\n"
    "rename to tests/new.sh\n",
    "a copy over the tests": "diff --git shop.sh tests/new.sh\ncopy from shop.sh\n"
    "copy to tests/new.sh\n",
    "tests beside a name with a bell": LEFTOVERS["an empty file with a bell"]
    + cheat("tests/new.sh", "", ""),
    "a mode of tests": "diff --git tests/old.sh tests/old.sh\nold mode 100644\nnew mode 100755\n",
    "git's steering": cheat(".gitattributes", "", ""),
    "a way up": cheat("../tests/new.sh", "i/", "w/"),
    "git's hooks": cheat(".git/hooks/post-checkout", "o/", "w/"),
    "nothing but leftovers": "".join(LEFTOVERS.values()),
    "quoted tests": 'diff --git "i/tests/new.sh" "w/tests/new.sh"\nnew file mode 100644\n'
    f'--- /dev/null\n+++ "w/tests/new.sh"\n@@ -0,0 +1 @@\n{PASS_ALL}',
}


@pytest.mark.sandbox
@pytest.mark.parametrize("attack", CHEATS.values(), ids=list(CHEATS))
def test_no_form_of_a_patch_makes_a_wrong_fix_right(
    attack: str,
    openings: Openings,  # noqa: F811
) -> None:
    wrong = GOLD.replace("+ $2", "* $2")
    for patch in (wrong + attack, attack + wrong, attack):
        assert openings.grade(patch).reward == 0.0


LEFT = {
    "a link": "ln -s README.md LINK.md",
    "a repository without a commit": "mkdir -p tmp/sub && cd tmp/sub && git init -q && echo x > y",
    "a repository": "mkdir sub && cd sub && git init -q && echo x > y && git add . && "
    "git -c user.name=a -c user.email=a@b commit -qm x",
    "a pipe, a picture, a bell": "mkfifo pipe; head -c 999 /dev/urandom > a.png; touch $'a\\ab'",
    "a file that nobody may read": "echo x > secret; chmod 000 secret",
}


@pytest.mark.sandbox
@pytest.mark.slow
def test_a_right_fix_in_a_work_tree_with_leftovers_earns_one() -> None:
    env = SweEnv(instances="corpus")
    try:
        env.reset(seed=0, options={"task": "swe-cart-train-000000"})
        *steps, submit = env.solve()
        for command in [*steps, *(f"({left})" for left in LEFT.values())]:
            assert env.step(command)[-1]["returncode"] == 0, command
        _, reward, *_, info = env.step(submit)
    finally:
        env.close()
    assert reward == 1.0, info["report"]
    assert "does not have a commit" in str(info["report"])
    assert "symbolic link" in str(info["report"])
