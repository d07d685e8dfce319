"""Where Flower (the extra `flower`) is not installed, what needs it is not collected."""

import importlib.util

_FLOWER = ["src/bonafed/flower", "tests/flower"]
collect_ignore = [] if importlib.util.find_spec("flwr") else _FLOWER
