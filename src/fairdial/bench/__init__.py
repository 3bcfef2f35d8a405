"""Studies that anyone can rerun: plans, trials, records, reports."""

PLAN, RECORDS = "plan.toml", "records"  # in the folder of a study
