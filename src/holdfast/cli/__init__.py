"""The command line: `holdfast letters|breakers|db|worker`. It shows and asks; the rules are elsewhere."""
