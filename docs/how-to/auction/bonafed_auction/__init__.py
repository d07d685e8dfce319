"""A mechanism for bonafed: seats by auction. Importing this imports nothing that trains."""

from bonafed.mechanisms.catalogue import Entry

ENTRY = Entry(
    "auction", "auction", "bonafed_auction.mechanism", "the lowest costs take part, at the next price",
    verbs="quote audit", formats=("auction-contract",),
)  # fmt: skip
