"""Files of related problems that rhumbline does not solve: what is said about each.

A user of such a file should read what is missing, not which word the parser stumbled over.
"""

SUGGESTION = "PyVRP and OR-Tools solve such problems"

# Sections and headers of VRPLIB files, by what they stand for.
UNSUPPORTED_WORDS = {
    "time windows": ("TIME_WINDOW", "TIME_WINDOWS", "READY_TIME", "DUE_DATE", "DUE_TIME"),
    "service times": ("SERVICE_TIME", "STANDTIME", "DURATION"),
    "pickups and deliveries": ("PICKUP", "PICKUP_AND_DELIVERY", "DELIVERY", "LINEHAUL"),
    "backhauls": ("BACKHAUL",),
    "heterogeneous fleets": (
        "VEHICLES_CAPACITY",
        "VEHICLES_MAX_DISTANCE",
        "VEHICLES_ALLOWED_CLIENTS",
        "VEHICLES_UNIT_DISTANCE_COST",
        "VEHICLES_FIXED_COST",
    ),
    "several depots": ("VEHICLES_DEPOT",),
    "release times": ("RELEASE_TIME",),
    "prizes": ("PRIZE",),
    "groups of customers": ("MUTUALLY_EXCLUSIVE_GROUP", "GTSP_SET"),
    "fixed edges": ("FIXED_EDGES",),
    "precedences": ("PRECEDENCE",),
}
UNSUPPORTED_SECTIONS = {
    f"{word}_SECTION": what for what, words in UNSUPPORTED_WORDS.items() for word in words
}

UNSUPPORTED_TYPES = {
    "VRPTW": "time windows",
    "CVRPTW": "time windows",
    "TSPTW": "time windows",
    "PDPTW": "time windows",
    "VRPB": "backhauls",
    "VRPBTW": "backhauls",
    "VRPPD": "pickups and deliveries",
    "VRPSPD": "pickups and deliveries",
    "PDP": "pickups and deliveries",
    "MDVRP": "several depots",
    "MDVRPTW": "several depots",
    "HFVRP": "heterogeneous fleets",
    "ATSP": "distances that depend on the direction",
    "ACVRP": "distances that depend on the direction",
    "SOP": "precedences",
    "HCP": "Hamiltonian cycle problems",
    "PCTSP": "prizes",
    "PCVRP": "prizes",
}


def explain_unsupported(key: str) -> str | None:
    """Return why a section is not read, or None for one that is not known."""
    what = UNSUPPORTED_SECTIONS.get(key)
    return f"{key}: {what} are not supported; {SUGGESTION}" if what else None


def explain_type(word: str) -> str | None:
    """Return why files of a TYPE are not read, or None for one that is not known."""
    what = UNSUPPORTED_TYPES.get(word)
    return f"TYPE {word}: {what} are not supported; {SUGGESTION}" if what else None
