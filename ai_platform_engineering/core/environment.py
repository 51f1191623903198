"""The variables of the process and of `.env` files: the one place that reads and sets them."""

import os
from collections.abc import Mapping
from pathlib import Path

from ai_platform_engineering.core.env_files import (
    ENV_FILE_VARIABLE,
    EnvFiles,
    find_home,
    read_env_files,
    read_named_file,
)
from ai_platform_engineering.core.legacy_variables import translate_legacy_variables
from ai_platform_engineering.core.model_providers import ModelProvider

_exported: dict[str, str] = {}  # variables of the process environment that were set by `export_variables`


def find_own_home() -> Path:
    """The folder of this program as the process environment names it; it says which files are trusted."""
    return find_home(_own_variables())


def find_missing_variables(provider: ModelProvider) -> list[str]:
    """The variables that a provider needs and are not set now, where its library looks for them: in the
    process environment. Of `A|B` one is needed."""
    missing: list[str] = []
    for names in provider.variables:
        if not any(os.environ.get(name, "").strip() for name in names.split("|")):
            missing.append(names)
    return missing


def wants_debug_log() -> bool:
    """Whether LOG_LEVEL asks for everything, as the process environment has it: no file was read yet."""
    return os.environ.get("LOG_LEVEL", "").strip().upper() == "DEBUG"


def find_certificates() -> tuple[str | None, str | None]:
    """The file and the folder of trusted certificates that the process environment names."""
    return os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")


def use_env_file(env_file: Path) -> None:
    """Names the `.env` file of this process and of those that it starts."""
    os.environ[ENV_FILE_VARIABLE] = str(env_file.absolute())


def read_dotenv(env_file: Path | None = None) -> dict[str, str]:
    """The variables of the `.env` files alone, or of the named file. Raises ConfigurationError."""
    if env_file is not None:
        return read_named_file(env_file)
    return dict(read_dotenv_files().variables)


def read_dotenv_files() -> EnvFiles:
    """The `.env` files in force. Raises ConfigurationError."""
    return read_env_files(_own_variables())


def read_environment(env_file: Path | None = None) -> dict[str, str]:
    """The variables in force: the process environment wins over the files. Raises ConfigurationError.

    What legacy variables say is added under our names, which libraries and agents know.
    """
    return translate_legacy_variables({**read_dotenv(env_file), **os.environ}).variables


def _own_variables() -> dict[str, str]:
    """The variables that this process was started with: no file says where files are."""
    return {name: value for name, value in os.environ.items() if _exported.get(name) != value}


def export_variables(variables: Mapping[str, str]) -> None:
    """Sets variables of `.env` in the process environment, for libraries that read it themselves."""
    # onnxruntime makes an id of this machine when it is imported, and would report to its makers.
    exports = {"ORT_DISABLE_TELEMETRY": "1", **variables}
    # Python's TLS reads SSL_CERT_FILE; people also set the names that curl and requests read.
    bundle = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")
    bundle = bundle or exports.get("REQUESTS_CA_BUNDLE") or exports.get("CURL_CA_BUNDLE")
    if bundle:
        exports.setdefault("SSL_CERT_FILE", bundle)
    for name, value in exports.items():
        if name not in os.environ or (value and not os.environ[name].strip()):
            os.environ[name] = value
            _exported[name] = value


def reread_environment() -> dict[str, str]:
    """The variables after a change of `.env`, without those of the old file. Nothing is exported yet."""
    return translate_legacy_variables({**read_dotenv(), **_own_variables()}).variables


def replace_exported_variables(variables: Mapping[str, str]) -> None:
    """Exports variables, and removes those that were exported before."""
    for name, value in _exported.items():
        if os.environ.get(name) == value:
            del os.environ[name]
    _exported.clear()
    export_variables(variables)
