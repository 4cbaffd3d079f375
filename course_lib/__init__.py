"""How a language model generates text, in small readable modules with a small model inside."""

__version__ = "0.1.0"
