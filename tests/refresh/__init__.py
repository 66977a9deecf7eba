"""Held views: refreshed within a bound."""
