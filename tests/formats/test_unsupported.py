"""Files of related problems are refused by the name of what is missing."""

from pathlib import Path

import pytest

from rhumbline.errors import InputError
from rhumbline.files import read

SOLOMON = """C101

VEHICLE
NUMBER     CAPACITY
  25         200

CUSTOMER
CUST NO.   XCOORD.   YCOORD.    DEMAND   READY TIME   DUE DATE   SERVICE TIME

    0      40         50          0          0       1236          0
    1      45         68         10        912        967         90
"""


@pytest.mark.parametrize("name", ["C101.txt", "C101", "C101.TXT", "C101.vrp"])
def test_solomon(tmp_path: Path, name: str) -> None:
    """Under any name; the line is that of the columns."""
    path = tmp_path / name
    path.write_text(SOLOMON)
    with pytest.raises(InputError, match=r"C101.*:8: time windows are not supported"):
        read(path)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("TIME_WINDOW_SECTION\n1 0 9", "time windows are not supported"),
        ("SERVICE_TIME_SECTION\n1 0", "service times are not supported"),
        ("PICKUP_AND_DELIVERY_SECTION\n1 0", "pickups and deliveries are not supported"),
        ("BACKHAUL_SECTION\n1", "backhauls are not supported"),
        ("BACKHAUL_SECTION : 1", "backhauls are not supported"),
        ("VEHICLES_CAPACITY_SECTION\n1 5", "heterogeneous fleets are not supported"),
        ("VEHICLES_DEPOT_SECTION\n1 1", "several depots are not supported"),
    ],
)
def test_sections_of_other_problems(tmp_path: Path, line: str, words: str) -> None:
    """The message names the line and the section."""
    path = tmp_path / "two.vrp"
    path.write_text(f"NAME : two\nTYPE : CVRP\nDIMENSION : 2\nDEMAND_SECTION\n1 0\n{line}\nEOF\n")
    with pytest.raises(InputError, match=rf"two.vrp:6: \w+_SECTION: {words}"):
        read(path)


@pytest.mark.parametrize(
    ("word", "words"),
    [("VRPTW", "time windows"), ("MDVRP", "several depots"), ("ATSP", "distances that depend")],
)
@pytest.mark.parametrize("suffix", [".vrp", ".tsp", ""])
def test_types_of_other_problems(tmp_path: Path, word: str, words: str, suffix: str) -> None:
    """Whatever the suffix says."""
    path = tmp_path / f"two{suffix}"
    path.write_text(f"NAME : two\nTYPE : {word}\nDIMENSION : 2\n")
    with pytest.raises(InputError, match=f"two{suffix}:2: TYPE {word}: {words}.* not supported"):
        read(path)
