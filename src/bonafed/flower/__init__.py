"""Carries messages between a server and its participants over Flower; it knows nothing of what they say.

    operator's process ── socket ── relay (ServerApp) ── SuperLink ── SuperNode ── socket ── participant

    link                 the operator's side: a `Transport` that starts Flower runs and replaces lost ones
    relay                the ServerApp: passes bytes on, by the number of a node
    node                 a participant's SuperNode, with an executor that passes bytes on and runs no app
    participant_process  a participant's process: data, model and secrets, behind a socket of its own
    participating        this process and its node as one command
    simulation           members that Flower's engine (Ray) simulates, behind the same relay
    simulated            the side of these members
    superlink            Flower's SuperLink, with a guard before it
    frames               bytes between two processes, and as the content of a Flower message
    folder, commands     the folder of a federation, its certificates, and Flower's own commands

What a participant executes is its own installation of bonafed, never the app that a server sends it.
"""
