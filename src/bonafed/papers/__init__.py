"""The papers' tables and figures: a study is a grid of runs, and what they show together."""
