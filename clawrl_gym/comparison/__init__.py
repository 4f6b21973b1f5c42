"""The bench of recipes: plan, processes, results, tables, page."""
