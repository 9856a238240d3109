"""Published references: rows of a finished design, kept in git, drawn where no GPU is."""
