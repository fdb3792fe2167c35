"""The doctor: looks at a program's policies and at the state of its store, and says what is wrong and what to do."""
