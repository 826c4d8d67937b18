"""The environment of a run: packages that it needs, and the build of torch that suits the driver."""
