"""How a model is timed: `slots` in the process that runs it, `pairs` in the judge that decides the order."""
