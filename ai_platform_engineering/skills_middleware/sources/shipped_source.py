"""The skills that come with the package."""

from pathlib import Path

from ai_platform_engineering.skills_middleware.sources.folder_source import SkillFolder

SHIPPED_FOLDER = Path(__file__).parents[1] / "skills"


def shipped_source(folder: Path = SHIPPED_FOLDER) -> SkillFolder:
    return SkillFolder(folder, origin="shipped", watched=False)
