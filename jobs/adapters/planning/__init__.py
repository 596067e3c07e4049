"""Tables at pinned versions become the plan that workers deliver by.

Called by whatever runs or replays a stream; it calls `app` and `tables`.
"""
