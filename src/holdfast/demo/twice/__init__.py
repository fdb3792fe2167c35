"""The same trouble twice, bare and guarded, in virtual time: the first chapter of the demo."""
