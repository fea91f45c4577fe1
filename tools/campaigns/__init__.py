"""Campaigns: long randomised runs that try to break the promises of the package.

    python -m tools.campaigns                       every campaign, ten minutes in all
    python -m tools.campaigns plans parsers --seconds 60

Each module here is one campaign and defines `run(seconds, seed)`; `EFFORT` is what it needs.
docs/internals/campaigns.md says what each of them does and found.
"""
