"""Files of an agent that run by themselves, or that steer the programs of a verifier.

A verifier on a machine of its own gets what the agent left as data. These rules say what is none:
start-up files of shells and interpreters, customising modules, bytecode without its source,
settings and plug-ins of test runners, hooks. The list is of kinds that are known; what a verifier
itself chooses to run of the agent's is the task's own affair.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable

_STEERING = re.compile(
    # Python: customising, paths, plug-ins that are found by their metadata, bytecode
    r"(site|user)customize(\..*)?|.*\.(pth|_pth|egg-link|dist-info|egg-info|pyc|pyo)|__pycache__"
    r"|__editable__.*|\.pdbrc(\.py)?|\.python(rc|startup)(\.py)?|pyvenv\.cfg|EGG-INFO"
    # test runners
    r"|conftest\.py|\.?pytest\.(ini|toml)|tox\.ini|\.coveragerc|\.?nose(rc|\.cfg)|\.rspec"
    r"|\.mocharc(\..*)?|\.proverc|\.nycrc.*"
    # shells, and tools that read a file for its name alone
    r"|\.(ba|z|k|c|tc)sh(rc|env|_.*).*|\.bash.*|\.z(profile|login|logout)|\.x?profile|\.log(in|out)"
    r"|\.inputrc|\.envrc|\.direnv|\.tool-versions|\.?mise\.toml|\.asdfrc|\.(curl|wget|net)rc"
    r"|\.npmrc|\.yarnrc(\..*)?|\.yarn|\.pnpmfile\.c?js|\.gitconfig|\.?hgrc|\.(gdb|lldb)init.*"
    r"|\.(sqlite|psql|pry|ir|gem|perltidy|vim|ex|nano|screen|conda|octave|pydistutils)(rc|\.cfg)"
    r"|\.perldb|\.Rprofile|\.Renviron|\.my\.cnf|\.pam_environment|ld\.so\.(preload|conf|cache)"
    r"|\.cargo|\.mvn|\.jvmopts|\.bundle"
)
_FOR_RUNNERS = re.compile(rb"^\s*\[(tool[.:]\s*)?pytest\b", re.MULTILINE)
_MANY_TOOLS = ("pyproject.toml", "setup.cfg")
"""Settings of many tools: data, unless a part of them is for a test runner."""

_NOT_THE_AGENTS = (
    "/tests", "/logs", "/solution", "/oracle", "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64",
    "/libx32", "/boot", "/proc", "/sys", "/dev", "/run", "/var/run", "/var/lib", "/var/cache",
    "/var/spool", "/etc",
)  # fmt: skip
"""Where a verifier's own files and the system's are."""
_STANDARD_FOLDERS = frozenset(
    ("/", "/root", "/home", "/var", "/tmp", "/opt", "/srv", "/mnt", "/media", "/var/tmp")
)
"""Too general to be named as what a task is about."""
_NAMED = re.compile(r"(?<![\w.$}/:~*?<-])(~|\$HOME|\$\{HOME\})?(/[\w.+@-]+(?:/[\w.+@-]+)*)")


def steers(path: str, homes: Collection[str] = ()) -> bool:
    """Whether what has this absolute path, or is in such a folder, is not taken for data."""
    in_home = any(path.startswith(f"{home.rstrip('/')}/.") for home in homes)
    return in_home or any(_STEERING.fullmatch(part) for part in path.split("/"))


def has_settings_of_runners(path: str, data: bytes) -> bool:
    """Whether a file of settings has a part for a test runner."""
    return posixpath.basename(path) in _MANY_TOOLS and _FOR_RUNNERS.search(data) is not None


def may_hold_work(path: str) -> bool:
    """Whether an agent works at a path: it is neither the system's nor a verifier's."""
    return not any(is_below(path, folder) for folder in _NOT_THE_AGENTS)


def may_be_work_folder(path: str) -> bool:
    """Whether a task's working directory may travel as a whole."""
    return path not in ("/", "/usr", "/usr/local", "/usr/bin", "/usr/lib", *_NOT_THE_AGENTS)


def is_below(path: str, folder: str) -> bool:
    """Whether it is the folder or in it."""
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def named_places(texts: Iterable[str], home: str) -> tuple[str, ...]:
    """The absolute paths in a task's own words and tests that an agent may have written to.

    Those within another one are left out.
    """
    paths = set[str]()
    for text in texts:
        for from_home, path in _NAMED.findall(text):
            named = posixpath.normpath((home if from_home else "") + path.rstrip("."))
            if named not in _STANDARD_FOLDERS and may_hold_work(named):
                paths.add(named)
    outermost = [p for p in paths if not any(p != q and is_below(p, q) for q in paths)]
    return tuple(sorted(outermost))


def plain_git_config(data: bytes) -> bytes:
    """A repository's configuration without the keys by which git runs programs.

    What is kept is a list: identity, remotes, branches, the format of the repository.
    """
    kept, section = list[str](), ""
    continued = False
    for line in data.decode(errors="replace").splitlines():
        was_continued, continued = continued, line.endswith("\\")
        header = re.match(r"\s*\[\s*([A-Za-z0-9.-]+)[^\]]*\]", line)
        if header and not was_continued:
            section = header[1].split(".")[0].lower()
            kept.append(header[0].strip())
            continue
        key = re.match(r"\s*([A-Za-z][A-Za-z0-9-]*)\s*(?:=|$)", line)
        if was_continued or continued or key is None:
            continue
        if _GIT_DATA.fullmatch(f"{section}.{key[1].lower()}"):
            kept.append(line)
    return "".join(f"{line}\n" for line in kept).encode()


_GIT_DATA = re.compile(
    r"core\.(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|symlinks|eol"
    r"|autocrlf|safecrlf|precomposeunicode|sparsecheckout|sparsecheckoutcone|quotepath)"
    r"|(user|author|committer)\.(name|email)|init\.defaultbranch|push\.default"
    r"|remote\.(url|pushurl|fetch|push|mirror|prune|tagopt)|pull\.(rebase|ff)"
    r"|branch\.(remote|merge|rebase|pushremote|description)|merge\.(ff|conflictstyle)"
    r"|submodule\.(url|active|branch)|receive\.deny\w*|extensions\.(objectformat|refstorage)"
)
