"""``stackcast rules``: the rules of a deployment, without Spark. Called by ``main``."""
