"""Link a graph: the order of its nodes, facts of its variables, and a virtual machine that runs it."""
