"""Measuring, drawing, results and made-up subscriptions, which several benchmarks share."""
