"""More rows than memory: counts of scores that add up, from partitions, queries and files."""
