"""Folders of tasks in other projects' forms, and how they are graded."""
