"""No Module at all: a class that can be called is enough."""

EXPECT = {"status": "pass"}


class ModelNew:
    def __call__(self, x):
        return x + 1
