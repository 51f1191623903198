"""A first connection to PostgreSQL: a pool would hide why there is none."""

import asyncio

from psycopg import AsyncConnection, Error
from psycopg.conninfo import conninfo_to_dict

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.databases.database_failures import unavailable

MIN_CONNECT_SECONDS = 2  # libpq takes no less


def check_postgres_address(address: str, variable: str) -> None:
    """Raises ConfigurationError for a text that is no address."""
    try:
        conninfo_to_dict(address)
    except Error:
        # Without the cause: its text quotes the address.
        raise ConfigurationError(f"{variable} is not an address of a PostgreSQL database.") from None


async def check_postgres(address: str, *, variable: str, label: str, seconds: float) -> None:
    """Connects and waits for an answer; nothing is written.

    Raises ConfigurationError for a text that is no address, and DatabaseUnavailable."""
    check_postgres_address(address, variable)
    try:
        async with asyncio.timeout(seconds):
            connection = await AsyncConnection.connect(
                address, autocommit=True, connect_timeout=max(MIN_CONNECT_SECONDS, round(seconds))
            )
            async with connection:
                await connection.execute("SELECT 1")
    except (Error, OSError, TimeoutError) as error:
        raise unavailable(label, error, f"Check {variable}.") from None
