"""`python -m bench doctor`: what of a run works on this machine, asked within a minute (docs/doctor.md)."""
