"""Parts of `serve` beside training: users, versions, clients, the process that stays up."""
