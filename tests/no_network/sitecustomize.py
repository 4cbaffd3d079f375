"""Python imports a module of this name whenever it starts; here that shuts off the network."""

import no_network  # noqa: F401
