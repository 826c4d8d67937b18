"""What the commands of `python -m bench` print."""
