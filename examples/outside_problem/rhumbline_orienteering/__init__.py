"""The orienteering problem: collect as much prize as possible on a trip of limited length."""

from rhumbline.domain import (
    DatasetFormat,
    Domain,
    FileFormats,
    PlanTools,
    PolicyFamily,
    SearchDefaults,
    TrainingTraits,
)
from rhumbline.policies.attention.encoder import Architecture

from rhumbline_orienteering import files
from rhumbline_orienteering.instance import OPInstance, Trip
from rhumbline_orienteering.policy import OPPolicy
from rhumbline_orienteering.rules import Orienteering, encode_trip, trip_edges

RULES = Orienteering()

OP = Domain(
    name="op",
    instance=OPInstance,
    plan=Trip,
    problem=RULES,
    policies={"op": PolicyFamily(Architecture, OPPolicy, RULES)},
    files=FileFormats(
        readers={".op": files.read_op},
        dataset=DatasetFormat(files.TENSORS, files.load_dataset, files.save_dataset),
        plan_suffix=".trip",
        write_plan=files.write_trip,
        read_plan=files.read_trip,
        parse_plan=files.parse_trip,
    ),
    plans=PlanTools(trip_edges, encode_trip),
    search=SearchDefaults(comparable_starts=True),
    training=TrainingTraits(pads_plans=True, store="rhumbline.training.data.by_shape:ShapeStore"),
    draw="rhumbline_orienteering.files:draw_trip",
)
