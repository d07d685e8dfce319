"""Pages for people: one HTML file that needs no other, for a phone, a screen and paper."""
