"""Packages that an installation may lack: how they are installed here, in words for people."""

import importlib.util
import shlex
import shutil
import sys
from pathlib import Path

PROJECT = "ai-platform-engineering"
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


def explain_extra(extra: str) -> str:
    """The sentence that says how the packages of an extra (or of several: `redis,valkey`) get here."""
    if is_image():
        # Its environment belongs to root, and would be gone with the container.
        return (
            f"Build an image from this one: FROM caipe, USER root, RUN pip install '{PROJECT}[{extra}]', "
            f"USER {IMAGE_USER} (docs/containers.md)"
        )
    installer = find_installer()
    if installer is None:
        return f"Install pip or uv for {sys.executable}, and with it {PROJECT}[{extra}]."
    return f"Run: {shlex.join([*installer, f'{PROJECT}[{extra}]'])}"


def explain_image_build(argument: str, value: str) -> str:
    """The sentence that says how the image is built with more in it, by an argument of its Dockerfile."""
    return (
        f"The image has it when it is built so: docker build --build-arg {argument}={value} . "
        f"(with Compose: {argument}={value} docker compose build)"
    )
