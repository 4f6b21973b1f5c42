"""Topics that anybody can say a sentence about; each belongs to one split.

All are names or mass nouns, so that a reply about one says the word as it stands here.
"""

from __future__ import annotations

from functools import cache

from clawrl_gym.core.types import Split
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.task_ids import split_of_content

_TOPICS = """
Japan Brazil Egypt Canada Italy India Kenya Norway Mexico Greece Peru Iceland Vietnam Morocco Spain
Poland Turkey Chile Cuba Finland Nepal Jamaica Ireland Portugal Thailand Austria Denmark Ghana
Paris London Tokyo Rome Berlin Venice Cairo Sydney Moscow Boston Chicago Vienna Athens Madrid Dublin
Lisbon Prague Istanbul Amsterdam Mumbai Seattle Geneva Oslo Havana
Europe Asia Africa Antarctica Australia Alaska Hawaii Sicily Greenland Siberia
Mercury Venus Mars Jupiter Saturn Neptune Uranus Pluto
honey coffee tea milk bread rice cheese chocolate sugar salt butter pasta pizza garlic ginger
cinnamon pepper yogurt vanilla tofu cocoa wine beer vinegar mustard sushi curry popcorn
gold silver iron copper glass wood paper plastic steel leather cotton wool silk rubber concrete
marble granite clay sand coal petroleum bamboo cork wax ivory amber
water fire wind rain snow ice fog thunder lightning sunlight gravity electricity magnetism heat
sound oxygen hydrogen helium carbon nitrogen energy light
chess football tennis swimming boxing golf hockey basketball baseball cricket rugby surfing skiing
cycling yoga karate judo fencing archery sailing
jazz opera ballet poetry painting photography sculpture theatre cinema music dance pottery origami
knitting gardening cooking fishing hiking camping dancing
biology chemistry physics mathematics geometry algebra history geography philosophy psychology
economics medicine law architecture engineering astronomy geology botany zoology linguistics
Shakespeare Mozart Einstein Newton Darwin Picasso Beethoven Galileo Napoleon Cleopatra Gandhi
Columbus Aristotle Plato Socrates Leonardo Edison Tesla
friendship courage happiness patience honesty kindness freedom justice democracy education health
sleep time money trade peace love memory laughter hope
"""


@cache
def topics_of(split: Split) -> tuple[str, ...]:
    """The topics of a split, mixed."""
    topics = _TOPICS.split()
    mixed = Draw("topics").some(topics, len(topics))
    return tuple(topic for topic in mixed if split_of_content(topic) == split)
