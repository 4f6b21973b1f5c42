"""The engine `openai`: a server of the OpenAI API elsewhere, and what its answers mean."""
