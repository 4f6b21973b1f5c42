"""The outcome that an answer in JSON reports: whether the call was carried out.

Fields are read as the field's clients and services write them: OpenClaw, MCP, JSON-RPC, GraphQL,
problem details, the error bodies of web services. An object that carries data of its own (an order
that was cancelled, a build that failed) is not a failure because of a word in it: weak words count
only in an object that is nothing but an answer about the call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Literal

from clawrl_gym.core.types import Json
from clawrl_gym.judge.signals.idle_words import stem

Outcome = Literal["failed", "succeeded", "empty"]

_MAX_DEPTH = 5


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ERRORS = _words(
    "error errors err exception exceptions fault failure failures failed traceback stacktrace"
    " errormessage errormessages errorcode errormsg errno errordescription errorsummary"
    " faultstring faultcode nonfielderrors fielderrors validationerrors"
)
_RAISED = _words(
    "iserror haserror timedout failed aborted cancelled canceled denied rejected interrupted killed"
    " forbidden blocked notfound ratelimited"
)
_DONE = _words("success ok succeeded successful")
_GRANTED = _words(
    "approved allowed permitted granted authorized authorised accepted confirmed consented booked"
    " executed applied delivered sent"
)
"""Words that are false of a call that was not let through, or was not carried out."""
_DECISION = _words("decision verdict approval permission behavior behaviour action answer choice")
_REFUSALS = _words(
    "deny denied reject rejected decline declined refuse refused disapproved veto vetoed no never"
    " cancel cancelled canceled abort aborted block blocked"
)
_EXIT_CODES = _words("exitcode exitstatus returncode exit rc")
_STATUS = _words("status state outcome result response conclusion cod code")
_STATE_OF_A_THING = _words("state conclusion")
"""Fields that tell, beside data, how what was asked for is: a deployment, a run."""
_HTTP = _words("status statuscode httpstatus httpcode httpstatuscode cod code")
_SIGNAL = _words("signal termsignal exitsignal")
_WORDS_OF_FAILURE = _words(
    "error err timeout timedout forbidden unauthorized unauthenticated notfound"
    " badrequest validationerror internalerror servererror accessdenied permissiondenied"
    " ratelimited quotaexceeded toolerror invalidrequest unavailable serviceunavailable"
    " approvalrequired"
)
_WEAK_WORDS_OF_FAILURE = _words(
    "failed fail failure aborted cancelled canceled denied rejected declined refused blocked"
    " exception invalid expired interrupted killed crashed unreachable unsupported skipped disabled"
    " overloaded false no"
)
_WORDS_OF_SUCCESS = _words(
    "ok success successful succeeded completed complete done passed accepted created updated"
    " deleted sent saved"
)
_ABOUT_THE_CALL = _words(
    "status state outcome result success ok message msg error errors reason detail details code"
    " tool type title output stdout stderr data response description hint traceid requestid"
    " timestamp time duration durationms took path instance kind deniedreason explanation"
    " content structuredcontent meta metadata body headers documentationurl comment feedback"
) | _ERRORS | _RAISED | _DONE | _EXIT_CODES | _HTTP | _SIGNAL | _GRANTED | _DECISION  # fmt: skip
"""Fields of an answer that is about the call and carries nothing of its own."""
_NESTED = _words(
    "result results data response output body details metadata meta content structuredcontent"
    " payload value answer"
)
_AROUND_AN_ANSWER = _ABOUT_THE_CALL | _NESTED | _words("id index jsonrpc name toolname toolcallid")
"""Fields of an object that wraps another one, which is the answer."""
_ONLY_AN_ERROR = _words("status tool error message code details detail iserror success ok")
"""Fields of an object that no file is likely to be: an error and nothing else."""
_MESSAGES = ("message", "msg", "detail", "details", "reason", "title", "description", "explanation")
_TEXTS = (*_MESSAGES, "content", "text", "output", "stdout", "stderr", "result", "response", "data")
_SEARCHED = _words("results matches hits documents searchresults organic")
_COUNTS = _words("total count totalcount totalresults numresults nummatches matchcount totalhits")
_NOTHING = ("", "none", "null", "nil", "no error", "no errors", "false", "0", "ok", "success")
_MARKS = re.compile(r"[^a-z0-9]")
_FENCED = re.compile(r"```(?:json)?\s*\n(?P<inside>.*)\n```", re.DOTALL)


def parsed(text: str) -> Json | list[object] | None:
    """The object or array that a whole result is, a fence around it taken off."""
    fenced = _FENCED.fullmatch(text)
    inside = fenced["inside"].strip() if fenced else text
    if not (inside.startswith(("{", "[")) and inside.endswith(("}", "]"))):
        return None
    try:
        value = json.loads(inside)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None


class Fields:
    """Reads answers in JSON. `fails` says whether a text in one, as a result of its own, fails."""

    def __init__(self, fails: Callable[[str], bool]) -> None:
        self._fails = fails

    def outcome(
        self,
        answer: Json | list[object],
        tool: str,
        is_file: bool,
        named: frozenset[str] = frozenset(),
        named_states: frozenset[str] = frozenset(),
    ) -> Outcome | None:
        """The outcome of the call by the answer; None when it does not say, or says both.

        A JSON file is an object too: of a file only what is nothing but an error counts. What the
        tool's name has (`named`), as in {"blocked": true} of block_user, is no failure of it, nor
        is a state that its arguments have, too (`named_states`).
        """
        if named or named_states:
            answer = _without(answer, named, named | named_states)
        if is_file:
            ended = isinstance(answer, dict) and _ended_badly(answer)
            return "failed" if ended or self._is_only_an_error(answer, tool) else None
        if self._failed(answer, 0):
            return "failed"
        if not isinstance(answer, dict):
            return None
        if _succeeded(answer):
            doubtful = _has_doubts(answer, 0) or _lacks_answer(answer) or self._a_text_fails(answer)
            return None if doubtful else "succeeded"
        return "empty" if _is_empty(answer) else None

    def _is_only_an_error(self, answer: object, tool: str) -> bool:
        if not isinstance(answer, dict) or answer.get("tool", tool) != tool:
            return False
        keys = {_plain(key) for key in answer}
        says_so = answer.get("status") in ("error", "failed") or len(keys & {"error", "iserror"})
        return bool(says_so) and keys <= _ONLY_AN_ERROR and self._failed(answer, 0)

    def _failed(self, value: object, depth: int) -> bool:
        if depth > _MAX_DEPTH:
            return False
        if isinstance(value, str):
            value = parsed(value.strip())
        if isinstance(value, list):
            return self._list_failed(value, depth)
        if not isinstance(value, dict):
            return False
        fields = {_plain(key): inner for key, inner in value.items()}
        if depth:
            fields = {key: inner for key, inner in fields.items() if not _are_records(inner)}
        code = _exit_code(fields)
        if code is not None:
            return code != 0
        if _says_failed(fields) or self._words_fail(fields):
            return True
        if not fields.keys() <= _AROUND_AN_ANSWER:
            return False  # a record, of which a part failed
        return any(
            self._failed(inner, depth + 1) for key, inner in fields.items() if key in _NESTED
        )

    def _list_failed(self, values: list[object], depth: int) -> bool:
        """Whether any one of several answers failed; records of data never count."""
        answers = [value for value in values if isinstance(value, dict)]
        if not answers or len(answers) < len(values):
            return False
        failed = [self._failed(answer, depth + 1) for answer in answers]
        if len(answers) == 1 or all(failed):
            return any(failed)
        return any(failed) and all(_is_about_the_call(answer) for answer in answers)

    def _words_fail(self, fields: Json) -> bool:
        """Whether what it says in words does, as far as it is an answer about the call."""
        if not fields.keys() <= _ABOUT_THE_CALL and fields.get("type") != "text":
            return False
        return self._a_text_fails(fields)

    def _a_text_fails(self, answer: Json) -> bool:
        fields = {_plain(key): value for key, value in answer.items()}
        texts = (fields.get(name) for name in _TEXTS)
        return any(self._fails(text) for text in texts if isinstance(text, str))


def _without(
    answer: Json | list[object], fields: frozenset[str], states: frozenset[str]
) -> Json | list[object]:
    """The answer without the fields and states that the call itself names."""
    if isinstance(answer, list):
        return [_without(v, fields, states) if isinstance(v, dict | list) else v for v in answer]
    kept = {key: value for key, value in answer.items() if stem(_plain(key)) not in fields}
    return {
        key: _without(value, fields, states) if isinstance(value, dict | list) else value
        for key, value in kept.items()
        if not (_plain(key) in _STATUS and stem(_plain(value)) in states)
    }


def _ended_badly(answer: Json) -> bool:
    """Whether a command's output is told beside an exit code that is not 0."""
    fields = {_plain(key): inner for key, inner in answer.items()}
    return bool(_exit_code(fields)) and bool(fields.keys() & {"stdout", "stderr", "output"})


def output_that_ended_well(answer: object) -> str | None:
    """The output of a command whose answer has an exit code of 0; None otherwise."""
    if not isinstance(answer, dict):
        return None
    fields = {_plain(key): inner for key, inner in answer.items()}
    inner = fields.get("metadata")
    codes = [fields, {_plain(k): v for k, v in inner.items()} if isinstance(inner, dict) else {}]
    printed = [fields[key] for key in ("stdout", "stderr", "output") if key in fields]
    if 0 not in map(_exit_code, codes) or not printed or any(map(_exit_code, codes)):
        return None
    return "\n".join(text for text in printed if isinstance(text, str))


def _says_failed(fields: Json) -> bool:
    """Whether a field that stands for the call says that it failed."""
    if any(_is_error(key, value) for key, value in fields.items()):
        return True
    if any(_is_false(fields[key]) for key in _DONE & fields.keys()):
        return True
    if any(_is_true(fields[key]) for key in _RAISED & fields.keys()):
        return True
    about_the_call = fields.keys() <= _ABOUT_THE_CALL
    if any(_is_http_failure(fields[key]) for key in _HTTP & fields.keys()) and (
        about_the_call or fields.keys() & {"message", "title", "detail"}
    ):
        return True
    if _words_in(fields, _STATUS - _STATE_OF_A_THING) & _WORDS_OF_FAILURE:
        return True
    words = _words_in(fields, _STATUS)
    if about_the_call and words & (_WORDS_OF_FAILURE | _WEAK_WORDS_OF_FAILURE):
        return True
    return (about_the_call and _is_refusal(fields)) or _is_refused_form(fields)


def _words_in(fields: Json, keys: frozenset[str]) -> set[str]:
    return {_plain(fields[key]) for key in keys & fields.keys()}


def _is_refusal(fields: Json) -> bool:
    """A person's, or that of who asks one: {"approved": false}, {"decision": "deny"}."""
    if any(fields[key] is False for key in _GRANTED & fields.keys()):
        return True
    return any(_plain(fields[key]) in _REFUSALS for key in _DECISION & fields.keys())


def _is_refused_form(fields: Json) -> bool:
    """{"detail": [{"loc": ..., "msg": ...}]}, or a list of complaints for each field."""
    detail = fields.get("detail")
    entries = detail if isinstance(detail, list) else []
    if any(isinstance(entry, dict) and entry.keys() >= {"loc", "msg"} for entry in entries):
        return True
    lists = [value for value in fields.values() if isinstance(value, list) and value]
    words = [word for value in lists for word in value]
    return (
        bool(fields)
        and len(lists) == len(fields)
        and all(isinstance(word, str) and _COMPLAINT.search(word) for word in words)
    )


_COMPLAINT = re.compile(
    r"\b(?:is required|may not be|must be|not a valid|is invalid|can't be|cannot be|too"
    r" (?:long|short)|already exists|does not exist|required\.)",
    re.IGNORECASE,
)


def _are_records(value: object) -> bool:
    """Whether it is a list of things that are kept somewhere, such as the errors of a tracker."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(each, dict) and "id" in each for each in value)
    )


def _is_error(key: str, value: object) -> bool:
    if key not in _ERRORS:
        return False
    if isinstance(value, str):
        return value.strip().lower() not in _NOTHING
    return bool(value)


def _succeeded(answer: Json) -> bool:
    fields = {_plain(key): value for key, value in answer.items()}
    inner = fields.get("metadata")
    if isinstance(inner, dict) and _exit_code({_plain(k): v for k, v in inner.items()}) == 0:
        return True
    if _exit_code(fields) == 0 or any(_is_true(fields[key]) for key in _DONE & fields.keys()):
        return True
    if fields.get("iserror") is False:
        return True
    if fields.get("error") is False:
        return True
    is_reply = "jsonrpc" in fields or ("error" in fields and not fields["error"])
    if is_reply and fields.get("result") not in (None, "", [], {}):
        return True
    words = {_plain(fields[key]) for key in ("status", "outcome", "result", "msg") if key in fields}
    if words & _WORDS_OF_SUCCESS:
        return True
    return any(_is_http_success(fields[key]) for key in _HTTP & fields.keys())


def _has_doubts(value: object, depth: int) -> bool:
    """Whether anything inside speaks of an error, wherever it stands."""
    if depth > _MAX_DEPTH:
        return True
    if isinstance(value, list):
        return any(_has_doubts(inner, depth + 1) for inner in value)
    if not isinstance(value, dict):
        return False
    fields = {_plain(key): inner for key, inner in value.items()}
    words = {_plain(fields[key]) for key in _STATUS & fields.keys()}
    if _says_failed(fields) or words & (_WORDS_OF_FAILURE | _WEAK_WORDS_OF_FAILURE):
        return True
    return any(_has_doubts(inner, depth + 1) for inner in fields.values())


def _is_empty(answer: Json) -> bool:
    """Whether something was looked for and nothing found."""
    fields = {_plain(key): value for key, value in answer.items()}
    found = [fields[key] for key in _SEARCHED & fields.keys()]
    if found:
        return not any(_holds_something(value) for value in found)
    counts = [fields[key] for key in _COUNTS & fields.keys()]
    return bool(counts) and all(_number(count) == 0 for count in counts)


def _holds_something(found: object) -> bool:
    """Whether a search found something; some put hits and their count in an object of its own."""
    return bool(found) and not (isinstance(found, dict) and _is_empty(found))


def _lacks_answer(answer: Json) -> bool:
    """Whether there is nothing where something should be, or a warning beside it."""
    fields = {_plain(key): value for key, value in answer.items()}
    containers = (fields[key] for key in (_NESTED | _SEARCHED | {"items"}) & fields.keys())
    warned = any(fields.get(name) for name in ("warning", "warnings"))
    return warned or _is_empty(answer) or any(not inner for inner in containers)


def _is_about_the_call(answer: Json) -> bool:
    return {_plain(key) for key in answer} <= _ABOUT_THE_CALL | {"id", "index"}


def _exit_code(fields: Json) -> int | None:
    codes = (fields[key] for key in _EXIT_CODES if key in fields)
    codes_in_words = (_number(code) for code in codes)
    return next((code for code in codes_in_words if code is not None), None)


def _is_http_failure(value: object) -> bool:
    number = _number(value)
    return number is not None and (400 <= number <= 599 or -33_000 < number <= -32_000)


def _is_http_success(value: object) -> bool:
    number = _number(value)
    return number is not None and 200 <= number <= 299


def _number(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,6}(?: [A-Za-z ]{1,40})?", value.strip()):
        return int(value.split()[0])
    return None


def _is_true(value: object) -> bool:
    return value is True or (isinstance(value, str) and value.lower() in ("true", "yes"))


def _is_false(value: object) -> bool:
    if isinstance(value, str):
        return value.lower() in ("false", "no", "0")
    return value is False or (isinstance(value, int) and value == 0)


def _plain(value: object) -> str:
    """A key or a word without marks and capitals: `is_error`, `isError` and `IS-ERROR` are one."""
    return _MARKS.sub("", value.lower()) if isinstance(value, str) else ""
