"""What `serve` has beside training: users, versions, clients, the process that stays up."""
