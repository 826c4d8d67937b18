"""Whole layers and one training step of them: a Transformer's encoder layer, a ResNet bottleneck."""
