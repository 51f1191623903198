"""The skills that come with the package."""

from pathlib import Path

from ai_platform_engineering.skills_middleware.sources.folder_source import FolderSource

SHIPPED = Path(__file__).parents[1] / "skills"


def shipped(folder: Path = SHIPPED) -> FolderSource:
    return FolderSource(folder, origin="shipped", watched=False)
