"""Other people's timings as rows of ours, marked as theirs: public tables, and anybody's CSV."""
