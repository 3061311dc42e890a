"""The Docker runtime. Start with runtime.py."""

from .runtime import DockerRuntime

__all__ = ["DockerRuntime"]
