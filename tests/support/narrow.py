"""A message's or a reply's parts, as tests expect them: anything else fails."""

from clawrl_gym.agents.agent import Action, ParseFailure
from clawrl_gym.core.types import Content, ContentPart, Message


def plain_text(message: Message) -> str:
    """The content of a message without parts."""
    content = message["content"]
    assert isinstance(content, str)
    return content


def parts(content: Content) -> list[ContentPart]:
    assert isinstance(content, list)
    return content


def text_of_part(part: ContentPart) -> str:
    assert part["type"] == "text"
    return part["text"]


def url_of_part(part: ContentPart) -> str:
    assert part["type"] == "image_url"
    return part["image_url"]["url"]


def action(parsed: Action | ParseFailure) -> Action:
    assert isinstance(parsed, Action)
    return parsed


def failure(parsed: Action | ParseFailure) -> ParseFailure:
    assert isinstance(parsed, ParseFailure)
    return parsed
