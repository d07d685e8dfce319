"""A posted price: one price per delivery, known before anybody reports, under a cap."""
