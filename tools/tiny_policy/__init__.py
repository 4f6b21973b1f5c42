"""The tiny policy: a Qwen3 of under a million parameters, made by our own recipe and shipped.

`python -m tools.tiny_policy` makes it again; transformers and vLLM load the folder offline.
It works in a shell, solves small sums for the conversation environment's users, reads and writes
files, calls tools, mends a line of a repository, and works on web pages. Its chat template is a
digest: long system messages, tool schemas and what OpenClaw adds to messages are cut to what it can
read. Other models bring their own template.

`--policy tiny_skills` makes the other one, of single skills of the terminal, an office and
pages, and of conversations.
"""
