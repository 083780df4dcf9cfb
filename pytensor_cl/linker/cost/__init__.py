"""The cost model: shapes, workload, estimates, and the operations that reports count."""
