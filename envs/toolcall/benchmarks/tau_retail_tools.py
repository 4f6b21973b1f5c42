"""The tools of tau-bench's retail shop, as it names and describes them."""

from __future__ import annotations

from clawrl_gym.core.types import Tool
from clawrl_gym.envs.toolcall.toolset import tool

REASONS = ("no longer needed", "ordered by mistake")
"""Reasons for which an order may be cancelled."""

_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
ADDRESS = ("address1", "address2", "city", "state", "country", "zip")
_PLACE = dict.fromkeys(ADDRESS, _TEXT)
_SWAP = {"order_id": _TEXT, "item_ids": _TEXTS, "new_item_ids": _TEXTS, "payment_method_id": _TEXT}
_RETURN = {"order_id": _TEXT, "item_ids": _TEXTS, "payment_method_id": _TEXT}

TOOLS: tuple[Tool, ...] = (
    tool("find_user_id_by_email", "The id of the user with this email", {"email": _TEXT}),
    tool(
        "find_user_id_by_name_zip",
        "The id of the user with this name and zip, for users who are not found by email",
        {"first_name": _TEXT, "last_name": _TEXT, "zip": _TEXT},
    ),
    tool("get_user_details", "All about a user, with orders and payments", {"user_id": _TEXT}),
    tool("get_order_details", "All about an order; ids begin with #", {"order_id": _TEXT}),
    tool("get_product_details", "A product with its items", {"product_id": _TEXT}),
    tool("get_item_details", "One item of a product", {"item_id": _TEXT}),
    tool("list_all_product_types", "All products: names and ids", {}),
    tool(
        "cancel_pending_order",
        "Cancel a pending order, after the user has said yes to it",
        {"order_id": _TEXT, "reason": {"type": "string", "enum": list(REASONS)}},
    ),
    tool(
        "modify_pending_order_address",
        "Change where a pending order goes, after the user has said yes to it",
        {"order_id": _TEXT, **_PLACE},
    ),
    tool(
        "modify_pending_order_items",
        "Change items of a pending order to others of the same product; once for an order, after "
        "the user has said yes to it",
        _SWAP,
    ),
    tool(
        "modify_pending_order_payment",
        "Change how a pending order is paid, after the user has said yes to it",
        {"order_id": _TEXT, "payment_method_id": _TEXT},
    ),
    tool(
        "modify_user_address",
        "Change a user's own address, after the user has said yes to it",
        {"user_id": _TEXT, **_PLACE},
    ),
    tool(
        "exchange_delivered_order_items",
        "Exchange items of a delivered order for others of the same product; once for an order, "
        "after the user has said yes to it",
        _SWAP,
    ),
    tool(
        "return_delivered_order_items",
        "Take back items of a delivered order; once for an order, after the user has said yes",
        _RETURN,
    ),
    tool("calculate", "The value of an arithmetic expression", {"expression": _TEXT}),
    tool("think", "Note a thought; nothing else happens", {"thought": _TEXT}),
    tool("transfer_to_human_agents", "Hand the user over to a colleague", {"summary": _TEXT}),
)
