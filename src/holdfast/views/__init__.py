"""What is shown of records: plain values in JSON's types, with what is secret masked; for commands and for the API."""
