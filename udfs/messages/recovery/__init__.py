"""The receiver that loses nothing, as a state machine without sockets."""
