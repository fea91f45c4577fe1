"""The orienteering problem: collect as much prize as possible on a trip of limited length."""

from rhumbline import domain
from rhumbline.policies.attention.encoder import Architecture
from rhumbline.problems.edges import trip_edges
from rhumbline_orienteering import files
from rhumbline_orienteering.policy import OPPolicy
from rhumbline_orienteering.rules import OPInstance, Orienteering, Trip

RULES = Orienteering()

OP = domain.Domain(
    name="op",
    instance=OPInstance,
    plan=Trip,
    problem=RULES,
    policies={"op": domain.PolicyFamily(Architecture, OPPolicy, RULES)},
    files=domain.FileFormats(
        readers={".op": files.read_op},
        dataset=domain.DatasetFormat(files.TENSORS, files.load_dataset, files.save_dataset),
        parse_plan=lambda numbers, instance: Trip(tuple(map(int, numbers))),
    ),
    plans=domain.PlanTools(trip_edges, lambda instance, trip: [*trip.customers, 0]),
    training=domain.TrainingTraits(pads_plans=True),
    draw="rhumbline_orienteering.files:draw_trip",
)
