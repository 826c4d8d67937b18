"""`python -m bench doctor`: checks within a minute which parts of a run work here (docs/doctor.md)."""
