"""Tasks in the JSON of OSWorld that happen in a browser."""
