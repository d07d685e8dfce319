"""A mechanism of your own: a posted price per participation."""
