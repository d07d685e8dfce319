"""Clients that are elsewhere: what is said to them, what they check, and what they sign.

Nothing here knows how messages travel (`transport`); `bonafed.flower` carries them.

    messages       the wire format: a signed header, and numbers
    keys, roster   who is who: names bound to public keys
    participant    one client's side: it verifies, agrees, works, keeps its own ledger, refuses
    federation     the server's side: a `Federation` whose clients answer messages
    masking        sums that nobody sees the parts of (theory M); `secure` and `summing` carry them out
"""
