"""GUI: tasks on web pages, seen as a tree or a picture, acted on with mouse and keyboard."""
