"""The machine: its cores and memory, threads, child processes, and work shared among processes."""
