"""Does the defence hold here? A corpus of gaming and honest candidates, run through the real processes.

`corpus/<group>/` holds a reference and the candidates that claim to be it, one file a mechanism.
"""
