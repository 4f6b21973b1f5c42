"""The sender of a request, and the owner of the session it names.

The owner's key opens everything; a user's only what is in `USER_ROUTES`, and there only what is
theirs: of anybody else's session a user learns no more than that they have none of that name. A
route that nobody put there is the owner's alone.
"""

from __future__ import annotations

from aiohttp import web

from clawrl_gym.core.ownership import OWNER, name_of, stored_id, user_named
from clawrl_gym.gateway.wire.refusals import Refusal
from clawrl_gym.gateway.wire.requests import Labels, labels_of, session_id_of

USER_ROUTES = frozenset(
    [("GET", "/v1/sessions"), ("POST", "/v1/sessions/{id}/end"), ("POST", "/sessions/{id}/begin"),
     ("POST", "/sessions/{id}/end"), ("GET", "/readyz"), ("GET", "/v1/versions"),
     ("POST", "/v1/versions/{version}")]
    + [(method, f"{base}/sessions/{{id}}")
       for method in ("GET", "DELETE") for base in ("", "/v1")]
    + [(method, f"{base}{path}")
       for base in ("", "/sessions/{id}")
       for method, path in (
           ("GET", "/v1/models"), ("GET", "/v1/models/{model}"), ("POST", "/v1/chat/completions"),
           ("POST", "/v1/completions"), ("POST", "/v1/messages"),
           ("POST", "/v1/messages/count_tokens"), ("POST", "/v1/responses"),
           ("POST", "/v1/feedback"))]
)  # fmt: skip
"""Routes by method and pattern; missing things are answered alike to everybody."""
_CALLER = web.RequestKey("caller", str)


def set_caller(request: web.Request, user: str) -> None:
    """Once, where the key is checked."""
    request[_CALLER] = user


def caller_of(request: web.Request) -> str:
    """The user whose key came with it; OWNER for the owner's."""
    return request[_CALLER]


def check_route(request: web.Request, user: str) -> None:
    """Raise Refusal (403) for what only the owner may do."""
    resource = request.match_info.route.resource
    if user == OWNER or resource is None:
        return
    method = "GET" if request.method == "HEAD" else request.method
    if (method, resource.canonical) not in USER_ROUTES:
        raise Refusal(
            403,
            f"{request.method} {request.path} is the owner's alone: ask with the gateway's key",
            "owner_only",
        )


def named_session(request: web.Request, name: str | None = None) -> str:
    """The stored id of the session in the path, or of `name`: the caller's own, or for the owner
    that of the user whom `?user=` names. Raises Refusal (400, 404)."""
    name = session_id_of(request.match_info["id"] if name is None else name)
    user = asked_user(request)
    if user is None:
        return stored_id(caller_of(request), name)
    if caller_of(request) not in (OWNER, user):
        raise no_session(name)
    return stored_id(user, name)


def asked_user(request: web.Request) -> str | None:
    """The user that `?user=` names; None without it."""
    name = request.query.get("user")
    return None if name is None else user_named(name)


def labels_by(request: web.Request) -> Labels:
    """The labels in a request's headers. Raises Refusal for those of an episode by a user: the
    owner's workers alone play any (403)."""
    labels = labels_of(request.headers)
    if caller_of(request) != OWNER and not labels.is_live:
        raise Refusal(
            403, "episodes are the owner's alone: leave X-Task-Id and X-Group-Id out", "owner_only"
        )
    return labels


def no_session(session_id: str) -> Refusal:
    """There is none of this name, as far as the caller may know."""
    return Refusal(404, f"there is no session {name_of(session_id)!r}", "session_not_found")
