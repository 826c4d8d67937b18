"""Import of rows from other people's files, and export of ours in the formats of other tools."""
