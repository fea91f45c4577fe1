"""Capacitated vehicle routing."""

from rhumbline.decoding.neighbourhoods import route_prefixes
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
from rhumbline.formats.plain.routing_json import is_cvrp_json, read_routing_json
from rhumbline.formats.plan_numbers import parse_routes
from rhumbline.formats.unsupported.solomon import is_solomon, refuse_solomon
from rhumbline.formats.vrplib import read_sol, read_vrp, write_sol
from rhumbline.local_search.polish import route_polisher
from rhumbline.policies.attention.encoder import Architecture
from rhumbline.policies.cvrp import CVRPPolicy
from rhumbline.problems.cvrp import CVRP, CVRPBatch, CVRPInstance, Routes
from rhumbline.problems.cvrp.construct import construct_routes
from rhumbline.problems.cvrp.edges import encode_routes, route_edges
from rhumbline.problems.cvrp.python_inputs import cvrp_from_python
from rhumbline.problems.cvrp.regions import RouteRegions
from rhumbline.problems.distributions.varied import vary_cvrp
from rhumbline.problems.unit_square import rescale_route_lengths

RULES = CVRP()


def routes_differ(instance: CVRPInstance) -> bool:
    """Return whether routes differ in length: a single customer has a single route."""
    return instance.size > 2


CVRP_DOMAIN = Domain(
    name="cvrp",
    instance=CVRPInstance,
    plan=Routes,
    problem=RULES,
    policies={
        "cvrp": PolicyFamily(
            Architecture, CVRPPolicy, RULES, converters={"tsp": CVRPPolicy.from_tsp}
        ),
    },
    files=FileFormats(
        readers={".vrp": read_vrp, ".csv": read_csv, ".json": read_routing_json},
        readers_by_content=((is_solomon, refuse_solomon),),
        readers_by_type={"CVRP": read_vrp},
        content_checks={".csv": is_csv, ".json": is_cvrp_json},
        dataset=DatasetFormat(
            frozenset({"xy", "demand"}), load_dataset, save_batch, stream_dataset
        ),
        plan_suffix=".sol",
        write_plan=write_sol,
        read_plan=read_sol,
        parse_plan=parse_routes,
        plan_form="a list of lists of whole numbers",
        plan_facts=Routes.route_facts,
    ),
    from_python=cvrp_from_python,
    weights="cvrp",
    plans=PlanTools(route_edges, encode_routes, route_polisher, polish_kernel="route moves"),
    neighbourhoods=route_prefixes,
    regions=RouteRegions,
    recombines_routes=True,
    plain_cost=CVRPBatch.without_surcharge,
    plane_stress=lambda instance: instance.plane_stress,
    construct=construct_routes,
    improver="ruin",
    search=SearchDefaults(
        strategy="cmaes-elite",
        prefers_refine=True,
        # As for the TSP: published rates of EAS-Emb, and a tenth of the published ones of EAS-Lay.
        # Eight files of CVRPLIB X, 10 s of one core, one seed: 0.27 % with 0.15, 0.37 % with 0.5.
        cpu_share=0.15,
        published=(PublishedSearch(2, 0.1),),
        eas_emb=ActiveSearchRates(0.0049, 0.0063),
        eas_lay=ActiveSearchRates(0.00041, 0.013),
        sgbs_eas=ActiveSearchRates(0.00041, 0.01),
        beam=(4, 4),
        learning_cost=rescale_route_lengths,
        learns_from_given_plans=True,
        # Routes are learnt in the order in which they were built, which the policy relies on.
        learns_from_views=False,
    ),
    training=TrainingTraits(
        # Rotations only. A mirrored copy's plan has its routes reversed, so its first customer is
        # no longer the start that found it.
        symmetric_copies=4,
        supports_attention_limit=True,
        pads_plans=True,
        has_neighbourhoods=True,
        has_fused_step=True,
        vary=vary_cvrp,
        min_items=2,
        store="rhumbline.training.data.routing:RoutingStore",
    ),
    plans_differ=routes_differ,
    draw="rhumbline.plots.routes:draw_routes",
)
