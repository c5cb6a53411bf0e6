"""Where jobs run; each engine takes jobs and yields results as they come."""
