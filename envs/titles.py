"""Titles of tickets and meetings of generated tasks. No title is part of another one."""

from __future__ import annotations

TICKET_TITLES = (
    "Printer jams", "Login fails", "Invoice is missing", "Screen flickers", "Export is empty",
    "Door does not lock", "Heating is cold", "Password expired", "Search finds nothing",
    "Report is late", "Phone line is dead", "Backup was skipped", "Mail bounces", "Map is outdated",
    "Lift is stuck", "Badge is refused", "Camera is dark", "Form loses entries", "Link is broken",
    "Totals are wrong", "Window is cracked", "Scanner is slow", "Licence ran out",
    "Calendar is off by a day", "Video has no sound", "Keyboard is sticky", "Fridge leaks",
    "Logo is blurred", "Signature is missing", "Price list is old",
)  # fmt: skip
MEETING_TITLES = (
    "Budget review", "Design sync", "Release plan", "Customer call", "Safety briefing",
    "Hiring round", "Sales forecast", "Team lunch", "Contract talk", "Data clinic", "Press preview",
    "Quarter kickoff", "Road map", "Supplier visit", "Training day", "Usability test", "Stand-up",
    "Retrospective", "Fire drill", "Town hall", "Market study", "Tax workshop", "Prototype demo",
    "Office move",
)  # fmt: skip
