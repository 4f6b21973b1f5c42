"""The bug that a row of SWE-smith brings as a patch, put into an image that has none."""

from __future__ import annotations

import secrets
import shlex

from clawrl_gym.core.errors import TaskError
from clawrl_gym.envs.sandbox.interface import Sandbox
from clawrl_gym.envs.swe.rows.instance import Instance
from clawrl_gym.envs.swe.rows.protected_files import own_patch

GIT_IDENTITY = (
    "GIT_AUTHOR_NAME=base GIT_AUTHOR_EMAIL=base@localhost GIT_AUTHOR_DATE='2024-01-01T00:00:00Z' "
    "GIT_COMMITTER_NAME=base GIT_COMMITTER_EMAIL=base@localhost "
    "GIT_COMMITTER_DATE='2024-01-01T00:00:00Z'"
)
"""Author and time of commits: the same tree is always the same commit."""
_FORGET = """
git for-each-ref --format='delete %(refname)' | grep -vx "delete $(git symbolic-ref -q HEAD)" |
  git update-ref --stdin
rm -f .git/ORIG_HEAD .git/FETCH_HEAD
git reflog expire --expire=now --all && git gc --quiet --prune=now
"""
"""Every commit of the image holds the solution."""


def set_up(instance: Instance, sandbox: Sandbox, timeout_s: float) -> None:
    """Apply and commit `setup_patch`, as the only commit that there is. Raises TaskError."""
    if not instance.setup_patch:
        return
    patch = own_patch(instance.setup_patch, instance.id, "patch")
    path = f"/tmp/{secrets.token_hex(8)}.diff"
    sandbox.write(path, patch.text.encode(errors="surrogateescape"))
    result = sandbox.exec(
        f"(cd {shlex.quote(instance.workdir)} && "
        "export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*' && "
        "{ git update-index -q --refresh; true; } && "
        f"git apply --index --whitespace=nowarn {path} && tree=$(git write-tree) && "
        f'commit=$({GIT_IDENTITY} git commit-tree "$tree" -m "the repository") && '
        f'git reset -q --soft "$commit" && {{ {_FORGET}\n}}; code=$?; rm -f {path}; exit $code)',
        timeout_s,
    )
    if result.exit_code != 0:
        outcome = (
            "took too long" if result.timed_out else f"failed: {result.output.strip()[-500:]!r}"
        )
        raise TaskError(f"instance {instance.id!r}: putting its bug into the repository {outcome}")
