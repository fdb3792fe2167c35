"""The narrow waist: records, the six verbs that a backend offers, and what is written once on top of them."""
