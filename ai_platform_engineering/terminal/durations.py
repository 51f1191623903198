"""Durations as people read them."""


def format_seconds(seconds: float) -> str:
    """`0.4 s`, `12 s`, `2 min 05 s`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest:02} s"
