"""Cost model: shapes, workload, estimates, roofline."""
