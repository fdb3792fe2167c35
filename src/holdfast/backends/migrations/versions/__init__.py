"""One file for each revision, literal: what it does must not change when the program does."""
