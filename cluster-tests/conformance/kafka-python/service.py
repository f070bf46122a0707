"""Stands in for the module of that name, which the package does not carry: its tests find a broker that runs already."""


class ExternalService:
    """The broker: others start and stop it."""

    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass

    def close(self):
        pass

    def stop(self):
        pass


class SpawnedService:
    """Never made: no test that starts a broker of its own is run."""
