"""report.html: one self-contained page about one run, or about several side by side."""
