"""What several benchmarks share: measuring, drawing, made-up subscriptions."""
