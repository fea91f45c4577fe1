"""Job-shop scheduling."""

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
from rhumbline.formats.jsplib import is_job_shop_file, read_jsp, read_schedule, write_schedule
from rhumbline.formats.jsplib_json import is_job_shop_json, read_json
from rhumbline.formats.plan_numbers import parse_schedule
from rhumbline.local_search.polish import schedule_polisher
from rhumbline.policies.jssp import JSSPArchitecture, JSSPPolicy
from rhumbline.policies.jssp_l2d import L2DArchitecture, L2DCritic, L2DPolicy
from rhumbline.policies.jssp_machines import (
    JSSPMachinesPolicy,
    MachinesArchitecture,
    MachinesCritic,
)
from rhumbline.problems.jssp import (
    JSSP,
    JSSPInstance,
    JSSPLeftShift,
    JSSPMachines,
    Schedule,
)
from rhumbline.problems.jssp.construct import construct_schedule
from rhumbline.problems.jssp.edges import encode_schedule, schedule_edges
from rhumbline.problems.jssp.python_inputs import jssp_from_python

RULES = JSSP()


def makespans_differ(instance: JSSPInstance) -> bool:
    """Return whether makespans differ.

    They do not for a single job, nor if each job is one operation: then every machine works without
    a pause, in any order.
    """
    jobs, longest, _ = instance.shape
    return jobs > 1 and longest > 1


JSSP_DOMAIN = Domain(
    name="jssp",
    instance=JSSPInstance,
    plan=Schedule,
    problem=RULES,
    policies={
        "jssp": PolicyFamily(JSSPArchitecture, JSSPPolicy, RULES),
        # The network of the paper, which assigns a job to each free machine at each tick.
        "jssp-machines": PolicyFamily(
            MachinesArchitecture, JSSPMachinesPolicy, JSSPMachines(), critic=MachinesCritic
        ),
        # L2D (Zhang et al. 2020), which the paper compares with.
        "jssp-l2d": PolicyFamily(L2DArchitecture, L2DPolicy, JSSPLeftShift(), critic=L2DCritic),
    },
    files=FileFormats(
        readers={".jsp": read_jsp, ".json": read_json},
        # Without a header: such files begin with numbers.
        readers_by_content=((is_job_shop_file, read_jsp),),
        content_checks={".txt": is_job_shop_file, ".json": is_job_shop_json},
        dataset=DatasetFormat(
            frozenset({"duration", "machine"}), load_dataset, save_batch, stream_dataset
        ),
        plan_suffix=".sched",
        write_plan=write_schedule,
        read_plan=read_schedule,
        parse_plan=parse_schedule,
        plan_form="a list of lists of whole numbers",
    ),
    from_python=jssp_from_python,
    weights="jssp",
    plans=PlanTools(
        schedule_edges, encode_schedule, schedule_polisher, polish_kernel="schedule moves"
    ),
    construct=construct_schedule,
    improver="tabu",
    search=SearchDefaults(
        strategy="sampling-elite",
        max_learning_rate=0.02,
        published=(PublishedSearch(3, 0.1, parents=12),),
        eas_emb=ActiveSearchRates(0.02, 0.0058),
        # A given schedule need not be active, and the policy cannot express others.
        learns_from_given_plans=False,
    ),
    training=TrainingTraits(is_grid=True, store="rhumbline.training.data.job_shop:JobShopStore"),
    plans_differ=makespans_differ,
    draw="rhumbline.plots.gantt:draw_gantt",
)
