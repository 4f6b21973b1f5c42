"""What the doctor is told about this host."""

import pytest

from clawrl_gym.envs.sandbox.bubblewrap import prove_isolation
from clawrl_gym.envs.sandbox.isolation import cure_for, isolation_report


def test_each_finding_is_made_once_and_a_bad_one_has_a_cure():
    findings = isolation_report()
    names = [finding.name for finding in findings]
    assert names == [
        "bubblewrap",
        "user namespaces",
        "seccomp",
        "cgroup limits",
        "uid ranges",
        "overlay file system",
    ]
    assert all(finding.ok or finding.cure for finding in findings)
    assert all(finding.detail for finding in findings)


@pytest.mark.sandbox
def test_where_sandboxes_run_everything_required_is_found():
    findings = isolation_report()
    assert all(finding.ok for finding in findings if finding.required)
    assert {finding.name for finding in findings if finding.ok} >= {"bubblewrap", "seccomp"}
    proof = prove_isolation()
    assert proof.ok, proof
    assert "ended in" in proof.detail


@pytest.mark.parametrize(
    ("said", "cure"),
    [
        ("FileNotFoundError: bwrap not found", "apt-get install bubblewrap"),
        ("PermissionError: [Errno 1] unshare(0x10020000)", "sysctl"),
        ("bwrap: setting up uid map: Permission denied", "sysctl"),
        ("something else", "doctor"),
    ],
)
def test_what_a_start_complains_about_has_a_cure(said, cure):
    assert cure in cure_for(said)
