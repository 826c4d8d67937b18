"""The pages and figures of a device's nights."""
