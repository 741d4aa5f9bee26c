"""Checks of the options a metric is built with."""

from __future__ import annotations

from typing import Any, Sequence


def check_choice(option: str, value: Any, allowed: Sequence[Any]) -> None:
    """Raises ValueError, listing the choices, if the value is none of them."""
    if value not in allowed:
        choices = ", ".join(repr(choice) for choice in allowed)
        raise ValueError(f"{option} must be one of {choices} (found {value!r})")


def check_together(condition: bool, message: str) -> None:
    """Raises ValueError with the message if options do not go together."""
    if not condition:
        raise ValueError(message)
