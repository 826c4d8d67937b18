"""Quantisation to 8 bits: what a faster product has to earn back."""
