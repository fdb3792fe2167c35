"""Who may do what: rights, accounts, tokens and sessions."""
