import pytest

from clawrl_gym.core.errors import TaskError
from clawrl_gym.envs.terminal.folders.compose import read_compose

KNOWN = {"IMAGE": "", "DIR": "/tests"}


def read(text, folder="environment"):
    return read_compose(text, "C", folder, KNOWN, "main")


def service(lines):
    """A file whose one service has these lines."""
    return "services:\n  main:\n" + "".join(f"    {line}\n" for line in lines.splitlines())


def test_one_service_becomes_a_machine():
    wanted = read(
        service(
            "build:\n  context: ./app\n  dockerfile: D\n  args: {A: 1, B: true}\n"
            "image: ${IMAGE}\nworking_dir: /srv\nuser: 1000:1000\n"
            "environment: [COLOR=red, 'DIR=${DIR}', 'MINE=${MINE:-none}', 'COST=5$$']\n"
            "command: [sleep, infinity]\nvolumes: ['${LOGS_PATH}:/logs']"
        )
    )
    assert (wanted.folder, wanted.dockerfile, wanted.image) == ("environment/app", "D", None)
    assert wanted.build_args == (("A", "1"), ("B", "true"))
    assert (wanted.workdir, wanted.user) == ("/srv", "1000:1000")
    assert wanted.env == {"COLOR": "red", "DIR": "/tests", "MINE": "none", "COST": "5$"}


def test_a_named_image_is_taken_when_nothing_is_built():
    assert read(service("image: debian:12")).image == "debian:12"
    assert read(service("build: .\nimage: x")).image is None
    assert read(service("image: ${IMAGE}")).image is None


def test_variables_of_this_machine_are_not_handed_in(monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "leaked")
    for text in ("$SECRET_TOKEN", "${SECRET_TOKEN}", "${SECRET_TOKEN:?why}"):
        with pytest.raises(TaskError, match="variables of this machine"):
            read(service(f"environment: {{A: '{text}'}}"))
    with pytest.raises(TaskError, match="variables of this machine"):
        read(service("environment: [SECRET_TOKEN]"))
    with pytest.raises(TaskError, match="expected a name and a value"):
        read(service("environment: {SECRET_TOKEN: }"))
    assert read(service("environment: {A: '${SECRET_TOKEN:-safe}'}")).env == {"A": "safe"}


@pytest.mark.parametrize(
    "line",
    [
        "privileged: true", "volumes: ['/:/host']", "volumes: ['./data:/data']",
        "volumes: [{type: bind, source: /, target: /host}]", "volumes: ['/var/run/docker.sock']",
        "volumes: ['${LOGS_PATH}/..:/logs']", "network_mode: host", "network_mode: 'container:x'",
        "pid: host", "ipc: host", "cap_add: [SYS_ADMIN]", "devices: ['/dev/sda']",
        "security_opt: ['seccomp:unconfined']", "env_file: .env", "extends: {file: /etc/x}",
        "secrets: [a]", "depends_on: [db]", "entrypoint: [x]", "userns_mode: host",
        "cgroup_parent: /", "sysctls: {a: 1}", "extra_hosts: ['a:1.1.1.1']", "nonsense: 1",
    ],
)  # fmt: skip
def test_what_opens_the_host_or_is_not_carried_out_is_refused_by_name(line):
    with pytest.raises(TaskError, match=f"C asks for {line.partition(':')[0]}.*not supported"):
        read(service(f"image: x\n{line}"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no services"),
        ("[]", "no services"),
        ("services: {}", "no services"),
        ("services: {a: 1}", "expected a table"),
        ("services: {a: {image: x}, b: {image: y}}", r"several services \['a', 'b'\]"),
        ("services: {a: {image: x}}\nnetworks: {n: }", "got networks, expected services only"),
        ("services: {a: {image: [x]}}", "expected a text"),
        ("services: {a: {build: [x]}}", "expected context"),
        ("services: {a: {build: {context: ., secrets: [x]}}}", "expected context"),
        ("services: {a: {build: ../other}}", "expected one below it"),
        ("services: {a: {build: /etc}}", "expected one below it"),
        ("services: {a: {build: 'https://x.org/r.git'}}", "expected one below it"),
        ("services: {a: {image: x, user: 'a b'}}", "got user: 'a b'"),
        ("services: {a: {image: x, environment: 3}}", "expected names with values"),
        ("services: {a: {image: x, environment: {'A B': 1}}}", "expected a name and a value"),
        ("services: {a: {image: x, healthcheck: {test: []}}}", "expected a command"),
        ("services: {a: {image: x, healthcheck: {test: x, retries: -1}}}", "retries: -1"),
        ("services: {a: {image: x, healthcheck: {test: x, interval: 5}}}", "duration 5"),
        ("services: {a: {image: x, healthcheck: {check: x}}}", "expected some of"),
        ("services: !!python/object/apply:os.system [id]", "could not determine a constructor"),
        ("a: &a [x]\nservices: {m: *a", "C: "),
        ("services: {a: {image: x, volumes: {a: b}}}", "asks for volumes: {'a': 'b'}: not"),
        ("services: {a: {image: x, environment: [A]}}", "expected NAME=VALUE"),
        ("services: {a: {image: x, environment: {A: [1]}}}", "expected names with values"),
        ("services: {a: {image: x, healthcheck: {test: x, retries: 0}}}", "retries: 0"),
        ("services: {a: {image: x, healthcheck: {test: x, retries: 1001}}}", "retries: 1001"),
        ("services: {a: {image: x, healthcheck: {test: x, retries: true}}}", "retries: True"),
        ("services: {a: {image: x, healthcheck: {test: ''}}}", "expected a command"),
        ("services: {a: {image: x, healthcheck: {test: [CMD]}}}", "expected a command"),
        ("services: {a: {image: x, healthcheck: {test: [CMD-SHELL, a, b]}}}", "expected a command"),
        ("services: {a: {image: x, healthcheck: {test: [SHELL, a]}}}", "expected a command"),
        ("services: {a: {image: x, healthcheck: {test: x, timeout: ''}}}", "duration ''"),
        ("services: {a: {image: x, healthcheck: {test: x, timeout: 5sx}}}", "duration '5sx'"),
        ("services: " + "[" * 5000, "C: "),
        (" " * (1 << 20) + "a", "larger than 1 MiB"),
    ],
)
def test_a_wrong_file_is_refused_and_runs_nothing(text, message):
    with pytest.raises(TaskError, match=message):
        read(text)


def test_a_health_check_is_read_in_all_its_forms():
    def health(text):
        return read(service(f"image: x\nhealthcheck: {text}")).health

    full = health("{test: [CMD-SHELL, 'a $$B'], interval: 1m30s, timeout: 500ms, retries: 4}")
    assert (full.command, full.interval_s, full.timeout_s, full.retries) == ("a $B", 90, 0.5, 4)
    plain = health("{test: [CMD, x], start_interval: 1.5h, start_period: 2ms}")
    assert (plain.command, plain.interval_s, plain.timeout_s, plain.retries) == ("x", 30, 30, 3)
    assert (plain.start_interval_s, plain.start_period_s) == (5400, 0.002)
    assert health("{test: x, retries: 1}").retries == 1
    assert health("{test: x, retries: 1000}").retries == 1000
    assert health("{test: [CMD, test, -f, 'a b']}").command == "test -f 'a b'"
    assert health("{test: 'curl x'}").command == "curl x"
    assert health("{test: [NONE]}") is None
    assert health("{test: [NONE, x]}") is None
    assert health("{disable: true}") is None


def test_a_file_of_one_mebibyte_is_read():
    text = service("image: x")
    assert read(text.ljust(1 << 20)).image == "x"
