"""A server of the OpenAI API that is measured: what it says of itself before it is asked."""

from __future__ import annotations

import json
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from clawrl_gym.config.evaluate import EndpointConfig
from clawrl_gym.preflight.problems import Problems

_TIMEOUT_S = 5.0
_REFUSED = (401, 403)
_MOST_NAMES = 8
_MOST_BYTES = 4 << 20


def endpoint_look(problems: Problems, endpoint: EndpointConfig) -> list[str]:
    """Notes about the server; a key that it refuses is a problem.

    Servers need not list their models, and may know more than they list: only a note says that a
    name is not among them. The first request tells the rest.
    """
    if endpoint.base_url is None:
        return []
    url = f"{endpoint.base_url.rstrip('/')}/models"
    try:
        request = Request(url, headers={"Authorization": f"Bearer {endpoint.key}"})
        with urlopen(request, timeout=_TIMEOUT_S) as answer:
            names = _names(answer.read(_MOST_BYTES))
    except HTTPError as error:
        if error.code in _REFUSED:
            problems.lines.append(
                f"got endpoint.key, which {url} refuses ({error.code}), expected a key of that "
                "server: endpoint.key=KEY"
            )
        return []
    except (OSError, ValueError):
        return []
    if not names or endpoint.model in names:
        return []
    listed = ", ".join(names[:_MOST_NAMES]) + (", ..." if len(names) > _MOST_NAMES else "")
    return [f"{url} does not list endpoint.model={endpoint.model!r}; it lists {listed}"]


def _names(body: bytes) -> list[str]:
    """Names of models. Raises ValueError for what is not a list of them."""
    try:
        return [str(model["id"]) for model in json.loads(body)["data"]]
    except (KeyError, TypeError) as error:
        raise ValueError("no list of models") from error
