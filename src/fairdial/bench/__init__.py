"""Studies that anyone can rerun: plans, trials, records, reports."""
