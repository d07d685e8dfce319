"""The paper's bounds, what they guarantee, and the advice that follows from them."""
