"""The part of a docker-compose file that one container can be: its one service.

What would open the machine that the containers run on is refused by name, like whatever else is
not carried out. Variables come from the layout's own list and their written defaults, never from
this machine.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

import yaml

from clawrl_gym.core.errors import TaskError
from clawrl_gym.envs.terminal.folders.machine_request import MachineRequest
from clawrl_gym.envs.terminal.task import Health

WITHOUT_EFFECT = frozenset(
    ("command", "container_name", "hostname", "init", "stdin_open", "tty", "restart", "ports",
     "expose", "labels", "platform", "pull_policy", "stop_grace_period", "stop_signal", "logging",
     "mem_limit", "memswap_limit", "mem_reservation", "cpus", "cpu_count", "cpu_shares",
     "pids_limit", "deploy", "shm_size", "ulimits")
)  # fmt: skip
"""Keys that change nothing: the command is our shell, and limits are the environment's to set."""
CARRIED_OUT = frozenset(
    ("image", "build", "working_dir", "environment", "user", "healthcheck", "network_mode",
     "volumes")
)  # fmt: skip
LOGS = re.compile(r"\$\{?\w*LOGS_PATH\}?|\$\{?\w*(TEST_DIR|ARTIFACTS?_PATH)\}?")
_MAX_BYTES = 1 << 20


def read_compose(
    text: str, where: str, folder: str, variables: Mapping[str, str], main: str
) -> MachineRequest:
    """The one service as a machine. `folder`: where the file lies, relative to the task's.

    Raises TaskError naming `where` and the key.
    """
    service = _service(text, where, main)
    _refuse(service, where)
    build = service.get("build")
    context, dockerfile, args = _build(build, where, variables)
    image, workdir, user = (service.get(key) for key in ("image", "working_dir", "user"))
    for key, value in (("image", image), ("working_dir", workdir), ("user", user)):
        if value is not None and not isinstance(value, str | int):
            raise TaskError(f"{where}: got {key}: {value!r:.100}, expected a text")
    if build is not None:
        image = None  # it only names what is built
    return MachineRequest(
        folder=_joined(folder, context, where),
        dockerfile=dockerfile,
        image=None if image is None else _expanded(str(image), variables, where) or None,
        workdir=None if workdir is None else _expanded(str(workdir), variables, where),
        env=_pairs(service.get("environment"), "environment", variables, where),
        build_args=tuple(sorted(args.items())),
        user=None if user is None else _user(str(user), where),
        health=_health(service.get("healthcheck"), where),
    )


def _service(text: str, where: str, main: str) -> dict[str, object]:
    if len(text) > _MAX_BYTES:
        raise TaskError(f"{where}: larger than {_MAX_BYTES >> 20} MiB")
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise TaskError(f"{where}: {error}") from error
    services = document.get("services") if isinstance(document, dict) else None
    if not isinstance(services, dict) or not services:
        raise TaskError(f"{where}: got no services, expected one")
    unsupported = sorted(set(document) - {"services", "version", "name"})
    if unsupported:
        raise TaskError(f"{where}: got {', '.join(map(str, unsupported))}, expected services only")
    if len(services) > 1:
        raise TaskError(
            f"{where}: got several services {sorted(map(str, services))}, expected only {main!r}: "
            "a task has one container"
        )
    service = next(iter(services.values()))
    if not isinstance(service, dict):
        raise TaskError(f"{where}: got the service {service!r:.100}, expected a table")
    return service


def _refuse(service: Mapping[str, object], where: str) -> None:
    """Refuse keys that open the host or are not supported."""
    refused = sorted(map(str, set(service) - WITHOUT_EFFECT - CARRIED_OUT))
    if service.get("network_mode", "bridge") not in ("bridge", "none", "default"):
        refused.append(f"network_mode: {service['network_mode']}")
    volumes = service.get("volumes") or []
    if isinstance(volumes, list):
        refused += [f"volumes: {volume}" for volume in volumes if not _is_logs(volume)]
    else:
        refused.append(f"volumes: {volumes}")
    if refused:
        raise TaskError(f"{where} asks for {', '.join(refused)}: not supported")


def _is_logs(volume: object) -> bool:
    """The mounts by which a harness fetches logs; ours reads them out of the container."""
    source, colon, _ = str(volume).partition(":")
    return isinstance(volume, str) and bool(colon) and LOGS.fullmatch(source) is not None


def _build(
    build: object, where: str, variables: Mapping[str, str]
) -> tuple[str, str, dict[str, str]]:
    if build is None:
        return ".", "Dockerfile", {}
    table = {"context": build} if isinstance(build, str) else build
    if not isinstance(table, dict) or set(table) - {"context", "dockerfile", "args"}:
        raise TaskError(f"{where}: got build: {build!r:.200}, expected context, dockerfile, args")
    context = _expanded(str(table.get("context", ".")), variables, where)
    dockerfile = _expanded(str(table.get("dockerfile", "Dockerfile")), variables, where)
    return context, dockerfile, _pairs(table.get("args"), "build.args", variables, where)


def _joined(folder: str, context: str, where: str) -> str:
    parts = [part for part in context.split("/") if part not in ("", ".")]
    if context.startswith("/") or ".." in parts or ":" in context:
        raise TaskError(f"{where}: got the build context {context!r}, expected one below it")
    return "/".join([folder, *parts])


def _pairs(value: object, key: str, variables: Mapping[str, str], where: str) -> dict[str, str]:
    """Compose's two forms: a table, or a list of NAME=VALUE."""
    if value is None:
        return {}
    if isinstance(value, list):
        split = [str(item).partition("=") for item in value]
        if not all(equals for _, equals, _ in split):
            raise TaskError(f"{where}: got {key}: {value!r:.200}, expected NAME=VALUE: variables "
                            "of this machine are not handed in")  # fmt: skip
        value = {name: text for name, _, text in split}
    if not isinstance(value, dict) or any(isinstance(v, dict | list) for v in value.values()):
        raise TaskError(f"{where}: got {key}: {value!r:.200}, expected names with values")
    for name, entry_value in value.items():
        if entry_value is None or not re.fullmatch(r"[A-Za-z_]\w*", str(name)):
            raise TaskError(
                f"{where}: got {key} {name!r}: {entry_value!r}, expected a name and a value"
            )
    plain = {str(n): str(v).lower() if isinstance(v, bool) else str(v) for n, v in value.items()}
    return {name: _expanded(text, variables, where) for name, text in plain.items()}


def _expanded(text: str, variables: Mapping[str, str], where: str) -> str:
    def value(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        name = match["braced"] or match["bare"]
        if name is not None and name in variables:
            return variables[name]
        if match["default"] is not None:
            return match["default"]
        raise TaskError(
            f"{where}: got the variable {match[0]}, expected ${{NAME:-default}}: variables of this "
            "machine are not handed in"
        )

    pattern = r"\$\$|\$\{(?P<braced>\w+)(?::?-(?P<default>[^}]*))?\}|\$(?P<bare>\w+)|\$\{"
    return re.sub(pattern, value, text)


def _user(user: str, where: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?", user):
        raise TaskError(f"{where}: got user: {user!r}, expected a name or a number")
    return user


def _health(table: object, where: str) -> Health | None:
    if table is None or (isinstance(table, dict) and table.get("disable") is True):
        return None
    keys = {"test", "interval", "timeout", "retries", "start_period", "start_interval"}
    if not isinstance(table, dict) or set(table) - keys:
        raise TaskError(
            f"{where}: got healthcheck: {table!r:.200}, expected some of {sorted(keys)}"
        )
    test, retries = table.get("test"), table.get("retries", 3)
    if isinstance(test, list) and test[:1] == ["NONE"]:
        return None
    if isinstance(test, list) and test[:1] == ["CMD-SHELL"] and len(test) == 2:
        command = str(test[1])
    elif isinstance(test, list) and test[:1] == ["CMD"] and len(test) > 1:
        command = shlex.join(map(str, test[1:]))
    elif isinstance(test, str) and test:
        command = test
    else:
        raise TaskError(f"{where}: got healthcheck.test: {test!r:.200}, expected a command")
    if isinstance(retries, bool) or not isinstance(retries, int) or not 0 < retries <= 1000:
        raise TaskError(f"{where}: got healthcheck.retries: {retries!r}, expected a number")
    return Health(
        command.replace("$$", "$"),
        interval_s=_seconds(table.get("interval", "30s"), where),
        timeout_s=_seconds(table.get("timeout", "30s"), where),
        start_period_s=_seconds(table.get("start_period", "0s"), where),
        start_interval_s=_seconds(table.get("start_interval", "5s"), where),
        retries=retries,
    )


def _seconds(text: object, where: str) -> float:
    """Compose's durations: 1m30s, 500ms."""
    units = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
    parts = re.findall(r"(\d{1,6}(?:\.\d{1,6})?)(ms|h|m|s)", str(text))
    if "".join(number + unit for number, unit in parts) != str(text) or not parts:
        raise TaskError(f"{where}: got the duration {text!r:.50}, expected one such as 1m30s")
    return sum(float(number) * units[unit] for number, unit in parts)
