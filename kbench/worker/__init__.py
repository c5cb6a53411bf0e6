"""The child half: the only code that imports torch or a task's files; reached through a process only."""
