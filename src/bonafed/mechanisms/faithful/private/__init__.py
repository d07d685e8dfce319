"""The protocol with differential privacy: its noise, its plan, its steps, and what it gives away."""
