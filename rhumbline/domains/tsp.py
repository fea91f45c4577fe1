"""The travelling-salesman problem."""

from rhumbline.decoding.neighbourhoods import tour_prefixes
from rhumbline.domain import (
    ActiveSearchRates,
    DatasetFormat,
    Domain,
    FileFormats,
    PlanTools,
    PolicyFamily,
    PublishedSearch,
    SearchDefaults,
    TrainingTraits,
)
from rhumbline.formats.dataset import load_dataset, save_batch, stream_dataset
from rhumbline.formats.plain.csv_files import is_csv, read_csv
from rhumbline.formats.plain.routing_json import is_tsp_json, read_routing_json
from rhumbline.formats.plan_numbers import parse_tour
from rhumbline.formats.tsplib import read_named_tour, read_tsp, write_tour
from rhumbline.local_search.polish import tour_polisher
from rhumbline.policies.attention.encoder import Architecture
from rhumbline.policies.tsp import TSPPolicy
from rhumbline.problems.distributions.varied import vary_tsp
from rhumbline.problems.tsp import TSP, Tour, TSPInstance
from rhumbline.problems.tsp.construct import construct_tour
from rhumbline.problems.tsp.edges import encode_tour, tour_edges
from rhumbline.problems.tsp.python_inputs import tsp_from_python
from rhumbline.problems.unit_square import rescale_lengths

RULES = TSP()


def tours_differ(instance: TSPInstance) -> bool:
    """Return whether tours differ in length: up to three cities there is one, and its reverse."""
    return instance.size > 3


TSP_DOMAIN = Domain(
    name="tsp",
    instance=TSPInstance,
    plan=Tour,
    problem=RULES,
    policies={"tsp": PolicyFamily(Architecture, TSPPolicy, RULES)},
    files=FileFormats(
        readers={".tsp": read_tsp, ".csv": read_csv, ".json": read_routing_json},
        readers_by_content=((is_csv, read_csv),),
        readers_by_type={"TSP": read_tsp, "": read_tsp},
        content_checks={".csv": is_csv, ".json": is_tsp_json},
        dataset=DatasetFormat(frozenset({"xy"}), load_dataset, save_batch, stream_dataset),
        plan_suffix=".tour",
        write_plan=write_tour,
        read_plan=read_named_tour,
        parse_plan=parse_tour,
    ),
    from_python=tsp_from_python,
    weights="tsp",
    plans=PlanTools(tour_edges, encode_tour, tour_polisher, polish_kernel="tour moves"),
    neighbourhoods=tour_prefixes,
    plane_stress=lambda instance: instance.plane_stress,
    construct=construct_tour,
    improver="ils",
    search=SearchDefaults(
        strategy="cmaes",
        prefers_refine=True,
        # EAS as published by Hottung et al. (2022); `eas_lay` has a tenth of the published rates,
        # whose first update ruins the shipped policy.
        published=(
            PublishedSearch(3, 1.0, max_size=100),
            PublishedSearch(3, 0.1, max_size=150),
            PublishedSearch(2, 0.1),
        ),
        eas_emb=ActiveSearchRates(0.0032, 0.0058),
        eas_lay=ActiveSearchRates(0.00032, 0.012),
        sgbs_eas=ActiveSearchRates(0.000815, 0.006),
        beam=(10, 10),
        learning_cost=rescale_lengths,
        learns_from_given_plans=True,
        learns_from_views=True,
    ),
    training=TrainingTraits(
        symmetric_copies=8,
        is_reversible=True,
        supports_attention_limit=True,
        has_neighbourhoods=True,
        has_fused_step=True,
        vary=vary_tsp,
        min_items=4,
        store="rhumbline.training.data.routing:RoutingStore",
    ),
    plans_differ=tours_differ,
    draw="rhumbline.plots.tour:draw_tour",
)
