"""Agents that lie about gradients, searches and the way between models, and what they gain by it."""
