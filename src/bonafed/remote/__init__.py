"""Clients that are elsewhere: what is said to them, what they check, and what they sign.

Nothing here knows how messages travel (`messages.Transport`); `bonafed.flower` carries them.

    messages, tasks, sums   what is sent: signed headers and numbers, work and answers, sums of answers
    keys, roster            who is who: names bound to public keys
    participation_coins     who takes part, by randomness that nobody chooses
    participant/            one client's side: it verifies, agrees, works, keeps its own ledger, refuses
    server/                 the operator's side: a `Federation` whose clients answer messages
    secure_sums/            sums that nobody sees the parts of (theory M)
"""
