"""Tests of kernels/, and the tools they share: a repaired interpreter, a sanitizer, a compiler."""
