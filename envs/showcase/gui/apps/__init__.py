"""Small seeded web applications whose state lives on the server side."""
