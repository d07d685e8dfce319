"""A mechanism from outside that publishes no contract: whoever takes the price draws lots for places."""
