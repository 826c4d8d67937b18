"""Studies, whose tables are evidence: `python -m studies.NAME`, `bench coverage`, `prediction`."""
