"""Packages that an installation may lack: how they are installed here, in words for people."""

import importlib.util
import os
import shutil
import sys
import sysconfig
from pathlib import Path

from ai_platform_engineering.core.terminals import command_name

# An empty file in the Python environment of the image, which nobody can install into.
IMAGE_MARK = "caipe-image"
IMAGE_USER = "10001:10001"


def is_image() -> bool:
    """Whether this process runs in the container image."""
    return (Path(sys.prefix) / IMAGE_MARK).exists()


def find_installer() -> list[str] | None:
    """The command that installs into this Python environment, without its packages: pip's, else uv's."""
    if importlib.util.find_spec("pip") is not None:
        # Not the `pip` on PATH: it may belong to another environment.
        return [sys.executable, "-m", "pip", "install"]
    uv = shutil.which("uv")
    if uv is not None:
        return [uv, "pip", "install", "--python", sys.executable]
    return None


def explain_extra(*extras: str) -> str:
    """The sentence that says how the packages of extras get here."""
    names = " ".join(extras)
    if is_image():
        # Its environment belongs to root, and would be gone with the container.
        return (
            f"Build an image from this one: FROM caipe, USER root, RUN caipe extras install {names}, "
            f"USER {IMAGE_USER} (docs/containers.md)"
        )
    return f"Run: {command_name()} extras install {names}"


def is_writable() -> bool:
    """Whether packages can be installed into this Python environment."""
    return os.access(sysconfig.get_path("purelib"), os.W_OK)


def explain_image_build(argument: str, value: str) -> str:
    """The sentence that says how the image is built with more in it, by an argument of its Dockerfile."""
    return (
        f"The image has it when it is built so: docker build --build-arg {argument}={value} . "
        f"(with Compose: {argument}={value} docker compose build)"
    )
