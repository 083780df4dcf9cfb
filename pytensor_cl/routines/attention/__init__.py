"""Attention and its gradients."""
