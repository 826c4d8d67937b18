"""Whole layers and one training step of them: Transformer layers, a perceptron, a ResNet bottleneck."""
