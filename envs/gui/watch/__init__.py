"""Watch: a task in the real browser, stepped by hand."""
