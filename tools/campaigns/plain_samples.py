"""Valid CSV tables and JSON objects as users write them, for damage."""

import json

CSV_TOUR = b"id,x,y\n10,0,0\n20,0,3\n30,4,3\n40,4,0.5\n"
CSV_ROUTES = (
    b"# capacity: 7.5\n# vehicles: 3\n# name: monday\n"
    b"Name;X;Y;Demand;Depot\na;0;0;2,5;0\nb;0;3;;1\nc;4;3;4;\nd;4,5;0;1;no\n"
)
CSV_COLUMN = b'"x"\t"y"\tdemand\tcapacity\n0\t0\t0\t5\n1\t2\t3\t\n3\t1\t1.25\t5\n'
CSV_FILES = (CSV_TOUR, CSV_ROUTES, CSV_COLUMN)

LENGTHS = [[0, 3, 5, 4], [3, 0, 4, 5], [5, 4, 0, 3], [4, 5, 3, 0]]
PLACES = [[0, 0], [0, 3], [4, 3], [4, 0.5]]
LOADS = {"demands": [0, 1.5, 2, 1], "capacity": 3, "vehicles": 3, "best_known": 18}
ROUTING_OBJECTS = (
    {"coordinates": PLACES, "name": "square"},
    {"distances": LENGTHS},
    {"coordinates": PLACES, **LOADS},
    {"distances": LENGTHS, **LOADS},
    {"depot": [0, 0], "customers": PLACES[1:], "demands": [1, 2, 1], "capacity": 3},
)
ROUTING_JSON = tuple(json.dumps(facts).encode() for facts in ROUTING_OBJECTS)

LIBRARY_OBJECTS = (
    {
        "name": "tiny",
        "duration_matrix": [[3, 2], [2, 4]],
        "machines_matrix": [[0, 1], [1, 0]],
        "metadata": {"optimum": None, "upper_bound": 7, "lower_bound": 6, "reference": "a paper"},
    },
    {"duration_matrix": [[3, 2], [2]], "machines_matrix": [[[0], [1]], [[1]]], "metadata": {}},
)
LIBRARY_JSON = tuple(json.dumps(facts).encode() for facts in LIBRARY_OBJECTS)
