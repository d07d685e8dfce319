"""Broken on purpose."""
def main(tell):
    return 0
