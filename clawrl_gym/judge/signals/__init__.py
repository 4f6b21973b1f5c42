"""What texts and tool results say: language, complaints, success and failure."""
