"""Carries messages between a server and its participants over Flower; it knows nothing of what they say.

    operator's process ── socket ── relay (ServerApp) ── SuperLink ── SuperNode ── socket ── keeper

    link           the operator's side: a `Transport` that starts Flower runs, and new ones for those lost
    relay          the ServerApp: passes bytes on, by the number of a node
    node           a participant's SuperNode, with an executor that passes bytes on and runs no app
    keeper         a participant's process: data, model and secrets, behind a socket of its own
    participating  keeper and node as one command
    simulation     members that Flower's engine (Ray) simulates, behind the same relay
    simulated      their side
    superlink      Flower's SuperLink, with a guard before it
    setup          the folder of a new federation

What a participant executes is its own installation of bonafed, never the app that a server sends it.
"""
