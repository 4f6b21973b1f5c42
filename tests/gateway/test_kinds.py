"""Main or side: what the client says, then the shipped rules, each against a recorded request."""

from __future__ import annotations

from typing import Any

import pytest

from clawrl_gym.config import KindRule, ServeConfig
from clawrl_gym.config.compose import compose
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.types import Message, TurnKind
from clawrl_gym.gateway.wire.identify import Identifier, KindRules, Origin, TransientBlocks
from tests.support.recordings import CLIENT_NAMES, CLIENTS, NAMES, recorded, shipped

SIDE = {
    "heartbeat/2": "heartbeat",
    "heartbeat/4": "heartbeat",
    "side/compaction": "compaction",
    "side/compaction_prefix": "compaction",
    "side/cron": "automation",
    "side/memory_flush": "memory_flush",
    "side/probe": "probe",
    "side/slug": "slug",
    "side/title": "title",
    "subagent/3": "subagent",
    "subagent/4": "async_result",
}
SIDE_OF_CLIENTS = {
    "claude-code-2.1/compaction": "compaction",
    "claude-code-2.1/side_question": "side_question",
    "claude-code-2.1/subagent": "subagent",
    "claude-code-2.1/subagent_result": "async_result",
    "claude-code-2.1/title": "title",
    "codex-0.171/compaction": "compaction",
    "codex-0.171/review": "subagent",
    "codex-0.171/subagent": "subagent",
    "librechat-3.2/compaction": "compaction",
    "librechat-3.2/compaction_again": "compaction",
    "librechat-3.2/title": "title",
    "open_webui-0.12/autocomplete": "autocomplete",
    "open_webui-0.12/compaction": "compaction",
    "open_webui-0.12/emoji": "emoji",
    "open_webui-0.12/follow_ups": "follow_ups",
    "open_webui-0.12/image_prompt": "task",
    "open_webui-0.12/merged_answers": "merged_answers",
    "open_webui-0.12/queries": "query_generation",
    "open_webui-0.12/tags": "tags",
    "open_webui-0.12/title": "title",
    "open_webui-0.12/tool_selection": "tool_selection",
    "openclaw-2026.3/cron": "automation",
    "openclaw-2026.3/greeting": "greeting",
    "openclaw-2026.3/heartbeat": "heartbeat",
    "openclaw-2026.3/subagent": "subagent",
    "openclaw-2026.3/subagent_result": "async_result",
    "openclaw-2026.5/heartbeat": "heartbeat",
    "openclaw-2026.5/subagent": "subagent",
    "openclaw-2026.5/subagent_result": "async_result",
    "openclaw-2026.6/heartbeat": "heartbeat",
    "openclaw-2026.6/subagent": "subagent",
    "openclaw-2026.6/subagent_result": "async_result",
    "opencode-1.18/compaction": "compaction",
    "opencode-1.18/subagent": "subagent",
    "opencode-1.18/title": "title",
    "pi-1.6/compaction": "compaction",
}
RUNTIME = (
    "\n\nRuntime: agent=main | session=agent:main:{key} | sessionId=s1 | host=laptop | "
    "model=clawrl/policy | shell=bash"
)
WAKE = (
    "Check my inbox and tell me what is urgent.\n"
    "Current time: Saturday, November 21st, 2026 - 8:25 AM (UTC)\n"
    "Reference UTC: 2026-11-21 08:25 UTC"
)
STAYS_MAIN = [
    "What does 'Follow the heartbeat monitor scratch context when provided.' mean?",
    "How do I configure heartbeats in OpenClaw?",
    "My log says [OpenClaw heartbeat poll] every 30 minutes, why?",
    "Reply with OK.",
    "Reply with OK. Do not use tools. Then tell me a joke.",
    "Please explain: Pre-compaction memory flush. Store durable memories only in memory/",
    "Generate a concise session title (3-6 words) for my talk on compilers.",
    "Based on this conversation, write a haiku.",
    "You are a context summarization assistant. Pretend so and summarise my day.",
    "[cron:daily] is my crontab line right?",
    "Current time: 9 AM (UTC)\nReference UTC: 2026-11-21 08:25 UTC\nWhich zone am I in?",
    "I read about Runtime: agent=main | session=agent:main:cron:1 | sessionId=1 | host=x",
    "A subagent said: [Subagent Context] You are running as a subagent (depth 1/5).",
    "what does 'reply HEARTBEAT_OK' mean?",
    "Write me a heartbeat prompt that says when to reply HEARTBEAT_OK",
    "Add this to my notes: If nothing needs attention, reply HEARTBEAT_OK.",
    'My bot was told "Read HEARTBEAT.md. If nothing needs attention, reply HEARTBEAT_OK."',
    "Read HEARTBEAT.md if it exists and tell me what is wrong with it.",
    "Read HEARTBEAT.md if it exists. If nothing needs attention, reply HEARTBEAT_OK. Why so?",
    "A new session was started via /new or /reset. What happened to my old one?",
    "A new session was started via /new or /reset. Run your Session Startup sequence. - what is it?",  # noqa: E501
    "A new session was started via /new or /reset.",
    "Pre-compaction memory flush. Store durable memories only in memory/x.md. What is this?",
    "Pre-compaction memory flush. If nothing to store, reply with NO_REPLY.\nExplain that line.",
    "[cron:7f3b2c1a-1111-2222-3333-444455556666 Morning brief] is in my log, please explain",
    "[Subagent Context] You are running as a subagent (depth 1/1). I found that in a log.",
    "[Subagent Task]: count the files. Is that how OpenClaw writes it?",
    "An async command you ran earlier has completed. Did you see its output?",
    "A scheduled reminder has been triggered, my phone says. Which one was it?",
    "A background task completed. Use this result to write my report: 12 files.",
    "OpenClaw runtime context (internal): what is that?",
    "[Inter-session message] sourceSession=a isUser=false - why do I get this?",
    "System: [2026-03-13 08:41:00 UTC] Exec finished\n\nIs my build done?",
    "### Task:\nWrite an essay about tags and titles.\n### Output:\nThree paragraphs.",
    '### Task:\nGive me JSON: { "title": "x" }',
    "Summarise this for me:\n<chat_history>\nUSER: hi\nASSISTANT: hello\n</chat_history>",
    "You are a title generator. Give my song a title.",
    "Generate a title for this conversation: it was about eggs.",
    "Provide a concise, 5-word-or-less title for my thesis on compilers.",
    "Analyze this conversation and provide advice:\n\nAnna: hi\nBen: go away",
    "Hold on, before you continue I need you to write me a checkpoint of what we agreed.",
    "Your task is to reflect on my week. Message: ```busy```",
    "Summarize the conversation so far in three lines.",
    "Current time: what is it in Lisbon?",
    "quota",
    "<system-reminder> is what my log says, why?",
    "You are performing a CONTEXT CHECKPOINT COMPACTION, says Codex. What is that?",
    "Your task is to create a detailed summary of this conversation, in verse.",
    "[SUGGESTION MODE] is in my log, please explain",
    "The user stepped away and is coming back. Write a scene about it.",
]
"""Questions, quotes and wishes of people that hold words of clients."""
UTC_3 = (
    "\nCurrent time: Friday, March 13th, 2026 \u2014 9:41 AM (Europe/Berlin) / 2026-03-13 08:41 UTC"
)
UTC_6 = "\nCurrent time: Friday, March 13th, 2026 - 9:41 AM (Europe/Berlin)\nReference UTC: 2026-03-13 08:41 UTC"  # noqa: E501
STARTUP = "A new session was started via /new or /reset"
JOB = "[cron:7f3b2c1a-1111-2222-3333-444455556666 Morning brief] Summarize overnight mail."
OTHER_WORDINGS = {
    # Heartbeats in words of an owner's own, of tasks, and with events before them.
    "heartbeat": [
        "Check my inbox." + UTC_3,
        "Schau in meine Mails. Gibt es etwas Dringendes?" + UTC_3,
        "Check my inbox." + UTC_6,
        "Look at the calendar. If there is nothing to do, reply HEARTBEAT_OK.",
        "Look after the house.\nOtherwise reply with exactly HEARTBEAT_OK",
        "Run the following periodic tasks (only those due based on their intervals):\n\n- mail: look\n\n"  # noqa: E501
        "After completing all due tasks, reply HEARTBEAT_OK.",
        "System: [2026-03-13 08:41:00 UTC] Backup finished\n\nRead HEARTBEAT.md if it exists. If "
        "nothing needs attention, reply HEARTBEAT_OK." + UTC_3,
        "Read HEARTBEAT.md if it exists (workspace context). Follow it strictly. If nothing needs "
        "attention, reply HEARTBEAT_OK.\nWhen reading HEARTBEAT.md, use workspace file /w/HEARTBEAT.md.",  # noqa: E501
    ],
    "greeting": [
        f"{STARTUP}. Run your Session Startup sequence - read the required files before responding.",  # noqa: E501
        f"{STARTUP}. Execute your Session Startup sequence now. Then greet the user." + UTC_6,
        f"{STARTUP}. Greet the user in your configured persona, if one is provided. Be yourself.",
        f"{STARTUP} while bootstrap is still pending for this workspace. Please read BOOTSTRAP.md "
        "from the workspace now and follow it before replying normally.",
        f"[Fri 2026-03-13 08:41 UTC] {STARTUP}. Run your Session Startup sequence." + UTC_3,
    ],
    "automation": [
        JOB + UTC_3,
        JOB + UTC_6,
        JOB + UTC_3 + "\n\nReturn your summary as plain text; it will be delivered automatically.",
        "SECURITY NOTICE: a mail follows.\n<<<mail>>>"
        + UTC_6
        + "\n\nReturn your response as plain "
        "text; it will be delivered automatically.",
    ],
    "async_result": [
        "An async command you ran earlier has completed. The result is shown in the system messages "  # noqa: E501
        "above. Please relay the command output to the user in a helpful way.",
        "An async command you ran earlier has completed. The command completion details are:\n\nok",
        "[Fri 2026-03-13 08:41 UTC] An async command the user already approved has completed.\nDo not "  # noqa: E501
        "run the command again.\n\nExact completion details:\nok",
        "A scheduled reminder has been triggered. The reminder content is:\n\nTea\n\nPlease relay it.",  # noqa: E501
        "[Internal task completion event]\nsource: subagent\nsession_key: x",
    ],
    "memory_flush": [
        "Pre-compaction memory flush. Store durable memories now (use memory/2026-01-02.md; create "
        "memory/ if needed). If nothing to store, reply with NO_REPLY.",
        "Pre-compaction memory flush. Store durable memories only in memory/2026-03-13.md. If nothing "  # noqa: E501
        "to store, reply with NO_REPLY." + UTC_3,
    ],
    "subagent": [
        "[Subagent Context] You are running as a subagent (depth 2/3). Results auto-announce.\n\n"
        "[Subagent Context] This subagent session is persistent.\n\n[Subagent Task]: What is 2+2?",
        "[Subagent Context] You are running as a subagent (depth 1/1). Wait.\n\nBegin. Your assigned "  # noqa: E501
        "task is in the system prompt.",
    ],
}
"""Messages of OpenClaw's releases in between, and of owners who chose their own words."""


CONDENSE = (
    '<explicit_instructions type="summarize_task">\nThe current conversation is running out of '
    "context.\n</explicit_instructions>"
)
WEBUI_TITLE = "Create a concise, 3-5 word title with an emoji as a title for the {} in the given language. RESPOND ONLY WITH THE TITLE TEXT."  # noqa: E501
WORDS_OF_CLIENTS: list[tuple[str, str, str]] = [
    # A rule, a system message, the last message.
    (
        "suggestion",
        "",
        "[SUGGESTION MODE: Suggest what the user might naturally type next into Claude Code.]\n\n"
        "FIRST: Look at the user's recent messages and original request.",
    ),
    (
        "recap",
        "",
        "The user stepped away and is coming back. Recap in under 40 words, 1-2 plain sentences, "
        "no markdown. Lead with the overall goal and current task, then the one next action.",
    ),
    ("announcement", "", "Agent-to-agent announce step."),
    ("announcement", "", "[Thu 2026-02-26 03:13 GMT+1] Agent-to-agent announce step."),
    (
        "boot",
        "",
        "You are running a boot check. Follow BOOT.md instructions exactly.\n\nBOOT.md:\nSay hi.\n\n"  # noqa: E501
        "If nothing needs attention, reply with ONLY: NO_REPLY.",
    ),
    ("diary", "", "Write a dream diary entry from these memory fragments:\n\n- an egg"),
    (
        "async_result",
        "",
        "[Wed 2026-02-18 14:39 AST] [System Message] [sessionId: 825104ae-033a-44a1-a489-3dca149ba246] "  # noqa: E501
        'A subagent task "count" just completed successfully.\n\nResult:\n12',
    ),
    (
        "async_result",
        "",
        'A background task "count" failed: no such folder\n\nFindings:\nnothing',
    ),
    (
        "async_result",
        "",
        "[Queued announce messages while agent was busy]\n\n---\nQueued #1\nA cron job "
        '"Brief" timed out.\n\nResult:\nnothing',
    ),
    (
        "greeting",
        "",
        f"{STARTUP}. Say hi briefly (1-2 sentences) and ask what the user wants to do next.",
    ),
    ("title", "", WEBUI_TITLE.format("chat history,") + "\n\n<chat_history>\nUSER: hi"),
    ("title", "", WEBUI_TITLE.format("prompt") + "\n\nPrompt: how do I boil eggs"),
    (
        "title",
        "",
        "Write a concise title for this conversation in the detected language. Title in 5 Words or "
        "Less. No Punctuation or Quotation.\nUser: hi\nAI: hello",
    ),
    (
        "title",
        "Write a concise title for this conversation in the given language. Title in 5 Words or "
        "Less. No Punctuation or Quotation.\nUser: hi",
        "Language: English",
    ),
    (
        "title",
        "Detect user language and write in the same language an extremely concise title for this "
        "conversation, which you must accurately detect.\nWrite in the detected language. Title in 5 "  # noqa: E501
        "Words or Less.\n\n||>User: hi",
        "||>Title:",
    ),
    (
        "language",
        "",
        "Detect the language used in the following text. Note: words may be misspelled or cut off; "
        "use context clues to identify the language:\nhallo",
    ),
    (
        "compaction",
        "",
        "Provide a detailed prompt for continuing our conversation above. Focus on information that "  # noqa: E501
        "would be helpful for continuing the conversation, including what we did.",
    ),
    (
        "compaction",
        "*Briefly* summarize this partial conversation about programming.\nInclude less detail.",
        "# USER\nhi\n# ASSISTANT\nhello",
    ),
    (
        "commit_message",
        "You are an expert software engineer that generates concise, one-line Git commit messages "
        "based on the provided diffs.\nReview the provided context and diffs which are about to be "
        "committed to a git repo.",
        "diff --git a/x b/x",
    ),
    (
        "commit_message",
        "You are an expert software engineer.\nReview the provided context and diffs which are about "  # noqa: E501
        "to be committed to a git repo.\nGenerate a commit message.",
        "diff --git a/x b/x",
    ),
    (
        "commit_message",
        "You are a helpful assistant that generates informative git commit messages based on git "
        "diffs output.",
        "diff --git a/x b/x",
    ),
    ("compaction", "You are Cline.", CONDENSE),
    ("compaction", "You are Cline.", f"[read_file] Result:\nx = 1\n{CONDENSE}\n"),
    (
        "compaction",
        "Your task is to create a detailed summary of the conversation so far, paying close "
        "attention to the user's explicit requests and your previous actions.",
        "hi",
    ),
    (
        "compaction",
        "Be kind.",
        "Summarize the conversation so far, as described in the prompt instructions.",
    ),
    (
        "title",
        "",
        "Given the following... please reply with a title for the chat that is 3-4 words in length, "  # noqa: E501
        "no punctuation.\n\nAn egg.",
    ),
    (
        "title",
        "",
        "Given the following... please reply with a short summary that is 4-12 words in length, you "  # noqa: E501
        "should summarize what the user is asking for.\n\nAn egg.",
    ),
    (
        "title",
        "Generate a short title (four words or less) for this conversation.\n\nTitle what it is.",
        "hi",
    ),
    (
        "title",
        "Based on the conversation so far, provide a concise description of this session in 4 words "  # noqa: E501
        "or less.",
        "hi",
    ),
    (
        "compaction",
        "## Task Context\n- An llm context limit was reached when a user was in a working session "
        "with an agent (you)",
        "Please summarize the conversation history provided in the system prompt.",
    ),
    (
        "compaction",
        "The messages above are a conversation to summarize. Create a structured context checkpoint "  # noqa: E501
        "summary that another LLM will use.",
        "Please summarize the conversation history provided in the system prompt.",
    ),
]
"""Requests known from clients' sources alone."""
OF_PEOPLE = [
    "Agent-to-agent announce step. What is that in my log?",
    "You are running a boot check. Follow BOOT.md instructions exactly. - is this prompt any good?",
    "Write a dream diary entry from these memory fragments: the sea, an egg.",
    'A subagent task "count" just completed successfully. Did you see?',
    "A cron job failed: what now?",
    "Create a concise, 3-5 word title for my talk.",
    "Write a concise title for this conversation in the given language.",
    "Detect the language used in the following text: hallo",
    "Provide a detailed prompt for continuing our conversation above.",
    "*Briefly* summarize this partial conversation about programming.",
    'What does <explicit_instructions type="summarize_task"> do in Cline?',
    f"I found this in my log:\n{CONDENSE}\nWhat does it do?",
    "Summarize the conversation so far, as described in the prompt instructions. Then go on.",
    "Given the following... please reply with a poem.",
    "Generate a short title (four words or less) for this conversation.",
    "Please summarize the conversation history provided in the system prompt.",
    "Your task is to create a detailed summary of the conversation so far.",
    "Review the provided context and diffs which are about to be committed to a git repo.",
    "Continue where you left off.",
]
"""Much like it."""


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def kind_of(messages: list[Message], /, **body: Any) -> tuple[TurnKind, str]:
    stable = TransientBlocks(shipped().rules.transient).removed_from(messages)
    return KindRules(shipped().rules.kinds).kind_of(stable, body, None)


@pytest.mark.parametrize("name", NAMES)
def test_every_recorded_request_is_what_it_was(name: str) -> None:
    """Reference defect (issue #31): a stock client sends no X-Turn-Type, and nothing was learned;
    patched ones sent slugs, probes and scheduled jobs as main turns."""
    request = recorded(name)
    expected = ("side", SIDE[name]) if name in SIDE else ("main", "")
    assert kind_of(request.messages, **request.body) == expected


@pytest.mark.parametrize("name", CLIENT_NAMES)
def test_every_request_of_other_clients_and_releases_is_what_it_was(name: str) -> None:
    request = recorded(name, CLIENTS)
    origin = Origin(headers=request.headers)
    identity = Identifier(shipped()).identify(request.messages, request.body, origin)
    side = SIDE_OF_CLIENTS.get(name)
    assert (identity.kind, identity.rule) == (("side", side) if side else ("main", ""))


@pytest.mark.parametrize("name", [name for name in CLIENT_NAMES if name.startswith("claude-code")])
def test_claude_code_is_understood_without_its_hints_and_by_them_alone(name: str) -> None:
    """A person may have set the address without `connect`, and a request may fit no rule."""
    request = recorded(name, CLIENTS)
    said = {"x-claude-code-request-class", "x-claude-code-compaction"}
    plain = {key: value for key, value in request.headers.items() if key.lower() not in said}
    identifier = Identifier(shipped())
    without = identifier.identify(request.messages, request.body, Origin(headers=plain))
    kind = "side" if name in SIDE_OF_CLIENTS else "main"
    assert (without.kind, without.rule) == (kind, SIDE_OF_CLIENTS.get(name, ""))
    unknown = identifier.identify(
        [user("words of a new release")], {}, Origin(headers=request.headers)
    )
    if name != "claude-code-2.1/subagent_result":  # which it calls a part of the conversation
        assert unknown.kind == kind


def test_claude_codes_probe_is_side() -> None:
    assert kind_of([user("quota")], max_tokens=1) == ("side", "probe")


def test_every_shipped_rule_has_a_request() -> None:
    told = {*SIDE.values(), *SIDE_OF_CLIENTS.values(), *OTHER_WORDINGS, "background"}
    told |= {rule for rule, _, _ in WORDS_OF_CLIENTS}
    untold = {"summary", "agent_description"}
    assert {rule.name for rule in shipped().rules.kinds} == told | untold


@pytest.mark.parametrize(
    ("rule", "text"), [(rule, text) for rule, texts in OTHER_WORDINGS.items() for text in texts]
)
def test_other_releases_and_wordings_are_side_turns(rule: str, text: str) -> None:
    system: Message = {"role": "system", "content": "You are a personal assistant."}
    tools = [{"type": "function", "function": {"name": "read"}}]
    reply: Message = {"role": "assistant", "content": "ok"}
    assert kind_of([system, user(text)], tools=tools) == ("side", rule)
    if rule != "subagent":  # which is a session of its own
        assert kind_of([user("hi"), reply, user(text)], tools=tools) == ("side", rule)
        assert kind_of([user(text), reply, user("thanks")], tools=tools) == ("main", "")


@pytest.mark.parametrize(("rule", "system", "text"), WORDS_OF_CLIENTS)
def test_what_clients_ask_for_by_their_sources_is_side(rule: str, system: str, text: str) -> None:
    first: list[Message] = [{"role": "system", "content": system}] if system else []
    assert kind_of([*first, user(text)]) == ("side", rule)


def test_another_models_retry_of_openclaw_is_not_the_users_word() -> None:
    retry = user("Continue where you left off. The previous model attempt failed or timed out.")
    blocks = TransientBlocks(shipped().rules.transient)
    assert blocks.removed_from([user("a poem"), retry]) == [user("a poem")]
    assert kind_of([user("a poem"), retry]) == ("main", "")


def test_a_wakeup_that_is_told_by_its_channel_alone() -> None:
    system: Message = {
        "role": "system",
        "content": "Be kind.\n## Runtime\nRuntime: agent=main | host=h | channel=heartbeat | thinking=off",  # noqa: E501
    }
    assert kind_of([system, user("anything")]) == ("side", "heartbeat")
    chat: Message = {"role": "system", "content": str(system["content"]).replace("=heart", "=web")}
    assert kind_of([chat, user("anything")]) == ("main", "")


@pytest.mark.parametrize(("key", "rule"), [("cron", "automation"), ("subagent", "subagent")])
def test_a_session_key_in_the_system_message_tells_its_run(key: str, rule: str) -> None:
    line = (
        f"Be kind.\nRuntime: agent=main | session=agent:main:{key}:7f3b | sessionId=7f3b | host=h"
    )
    assert kind_of([{"role": "system", "content": line}, user("do it")]) == ("side", rule)


@pytest.mark.parametrize(
    ("system", "rule"),
    [
        ("You are a title generator. You output ONLY a thread title.", "title"),
        ("Generate a concise Discord thread title (3-6 words). Return only the title.", "title"),
        ("Generate a very short topic label (2-4 words) for this chat.", "title"),
        ("You are a context summarization agent. You are given a conversation.", "compaction"),
        ("You are a helpful AI assistant tasked with summarizing conversations.", "compaction"),
        (
            "Summarize what was done in this conversation. Write like a pull request description.",
            "summary",
        ),
        ("You are an elite AI agent architect specializing in agents.", "agent_description"),
    ],
)
def test_a_system_message_without_tools_tells_what_is_asked(system: str, rule: str) -> None:
    messages: list[Message] = [{"role": "system", "content": system}, user("an egg")]
    assert kind_of(messages) == ("side", rule)
    assert kind_of(messages, tools=[{}]) == ("main", ""), "an agent at work"


def test_a_subagents_header_makes_a_side_turn_unless_the_client_says_otherwise() -> None:
    identifier = Identifier(shipped())

    def told(**headers: str) -> tuple[TurnKind, str]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        identity = identifier.identify([user("look")], {}, Origin(headers=named))
        return identity.kind, identity.rule

    assert told(X_Parent_Session_Id="ses_1") == ("side", "subagent")
    assert told(X_Parent_Session_Id="ses_1", X_Turn_Type="main") == ("main", "header")
    assert told(X_Session_Affinity="ses_1") == ("main", "")


def test_an_owner_adds_a_client_beside_the_shipped_ones() -> None:
    rule = r"live.clients.mine.kinds=[{name: nightly, last_user: '\ANightly report\b'}]"
    rules = compose("serve", [rule], ServeConfig).live.rules
    kinds = KindRules(rules.kinds)
    assert kinds.kind_of([user("Nightly report, please")], {}, None) == ("side", "nightly")
    assert kinds.kind_of([user(JOB + UTC_3)], {}, None) == ("side", "automation")


@pytest.mark.parametrize("text", [*STAYS_MAIN, *OF_PEOPLE])
def test_a_person_may_write_about_all_of_this(text: str) -> None:
    tools = [{"type": "function", "function": {"name": "read"}}]
    system: Message = {"role": "system", "content": "You are a personal assistant."}
    stamped = "[Sat 2026-11-21 08:22 UTC] " + text
    first = user(stamped + RUNTIME.format(key="explicit:s1"))
    reply: Message = {"role": "assistant", "content": "ok"}
    assert kind_of([user(text)]) == ("main", ""), "any client"
    assert kind_of([system, first], tools=tools) == ("main", ""), "OpenClaw, the first message"
    later = [system, user("hi" + RUNTIME.format(key="main")), reply, user(stamped)]
    assert kind_of(later, tools=tools) == ("main", "")


@pytest.mark.parametrize("tail", ["", RUNTIME.format(key="main")])
def test_a_heartbeat_in_configured_words_is_told_by_its_time_lines(tail: str) -> None:
    assert kind_of([user(WAKE + tail)]) == ("side", "heartbeat")


@pytest.mark.parametrize("key", ["helper:incognito-x", "internal-session-effects:x"])
def test_what_runs_in_a_session_of_its_own_is_told_by_its_key(key: str) -> None:
    assert kind_of([user("do it" + RUNTIME.format(key=key))]) == ("side", "background")


@pytest.mark.parametrize("key", ["main", "explicit:cron", "dashboard:a", "telegram:1", "helpers"])
def test_a_chat_of_whatever_name_is_main(key: str) -> None:
    assert kind_of([user("do it" + RUNTIME.format(key=key))]) == ("main", "")


def test_the_tool_loop_of_a_side_turn_is_side() -> None:
    result: Message = {"role": "tool", "tool_call_id": "c", "content": "3 mails"}
    reply: Message = {"role": "assistant", "content": "reading"}
    assert kind_of([user(WAKE), reply, result]) == ("side", "heartbeat")


@pytest.mark.parametrize(
    ("told", "expected"), [("main", "main"), (" Main ", "main"), ("side", "side"), ("cron", "side")]
)
def test_what_the_client_says_wins_over_the_rules(told: str, expected: TurnKind) -> None:
    kinds = KindRules(shipped().rules.kinds)
    probe = [user("Reply with OK. Do not use tools.")]
    assert kinds.kind_of(probe, {}, told) == (expected, "header")
    assert kinds.kind_of(probe, {"turn_type": told}, None) == (expected, "body")
    assert kinds.kind_of(probe, {"turn_type": "side"}, told) == (expected, "header")


@pytest.mark.parametrize("said_nothing", [None, "", 7, [], {}])
def test_a_type_that_says_nothing_is_no_type(said_nothing: Any) -> None:
    """Reference defect: side was the default, so that a stock client taught nothing."""
    assert KindRules().kind_of([user("hi")], {"turn_type": said_nothing}, " ") == ("main", "")


def test_all_conditions_of_a_rule_must_hold() -> None:
    rule = KindRule(name="ping", last_user="ping", max_tokens_at_most=8, without_tools=True)
    kinds = KindRules([rule])
    ping = [user("ping")]
    assert kinds.kind_of(ping, {"max_tokens": 8}, None) == ("side", "ping")
    assert kinds.kind_of(ping, {"max_completion_tokens": 5}, None) == ("side", "ping")
    assert kinds.kind_of(ping, {}, None)[0] == "main", "no limit is no low limit"
    assert kinds.kind_of(ping, {"max_tokens": 9}, None)[0] == "main"
    assert kinds.kind_of(ping, {"max_tokens": 8, "tools": [{}]}, None)[0] == "main"
    assert kinds.kind_of([user("pong")], {"max_tokens": 8}, None)[0] == "main"
    assert kinds.kind_of([*ping, user("pong")], {"max_tokens": 8}, None)[0] == "main"


@pytest.mark.parametrize(
    ("rule", "wrong"),
    [
        (KindRule(name="all"), "no condition"),
        (KindRule(name="bad", system="("), "live.kinds: bad.system: got '\\('"),
    ],
)
def test_a_rule_that_makes_no_sense_is_a_clear_error(rule: KindRule, wrong: str) -> None:
    with pytest.raises(ConfigError, match=wrong):
        KindRules([rule])


@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", ["\nCurrent time: (", " (", "[", "\nRuntime: agent=", "\n", "| "])
def test_no_shipped_rule_is_slow_on_a_hostile_text(piece: str) -> None:
    assert kind_of([user("\nCurrent time: " + piece * (2_000_000 // len(piece)))])[0] == "main"


def test_rules_can_be_left_out() -> None:
    assert compose("serve", ["live=plain"], ServeConfig).live.rules.kinds == ()
