"""Put a network into the tables `switches`, `hosts` and `links`: generated, or a published one.

    spark-submit jobs/load_topology.py --fabric pods=8,racks=4,hosts=2,planes=2,spines=2
    spark-submit jobs/load_topology.py --jellyfish switches=256,degree=8 --hosts-per-switch 4
    spark-submit jobs/load_topology.py --topohub topozoo/Abilene
    spark-submit jobs/load_topology.py --graphml FILE

The job prints the properties of the network, and the names of the parts of a graph that it leaves
out: all components except the largest, edges from a node to itself and, without --parallel, all
edges except one between two nodes; of a GraphML file also hyperedges, further graphs and attributes
without effect. It keeps weights (`weight`) and failed links (`up`) of a graph. Switches that are
already in the tables keep address, program and limits, and links between the same ports keep their
id and whether they are up. Running the same command again changes nothing. The job creates no
trees: jobs/retune_trees.py chooses them, and without trees, all stacks consist of hop labels.

The exit code is 0 after success, 1 with --dry-run if only --replace would write, and 2 after an
error.
"""

from __future__ import annotations

import argparse
import logging
import sys
from functools import partial

from stackcast.jobs.command_lines.load_topology import PATTERN, parser

if __name__ == "__main__":
    parser(__doc__).parse_args()

from stackcast.jobs.adapters.app import application, session
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.tables.network_loading import compare, load
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.jobs.adapters.tables.topologies import (
    Asked,
    addresses,
    build,
)
from stackcast.udfs.errors import TableError
from stackcast.udfs.network.encodings import label_format
from stackcast.udfs.network.labels import MAX_PORT
from stackcast.udfs.network.measures import Measures, measure
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.programs import check_labels, matching_program
from stackcast.udfs.network.succession import Succession, SwitchSettings

log = logging.getLogger("stackcast.load_topology")

#: Exit code of --dry-run where the tables hold another network.
WOULD_REPLACE = 1


def main(arguments: list[str]) -> int:
    return application.run(partial(work, parser(__doc__).parse_args(arguments)))


def work(options: argparse.Namespace, settings: Settings, lifecycle: Lifecycle) -> int:
    if options.fabric is not None and options.hosts_per_switch is not None:
        message = "--hosts-per-switch does not apply to a fabric: give hosts=N in --fabric"
        parser(__doc__).error(message)
    labels = label_format(settings.encoding, options.label_bits or settings.label_bits)
    asked = Asked(
        options.fabric,
        options.jellyfish,
        options.topohub,
        options.graphml,
        options.hosts_per_switch or 1,
        options.publishers,
        options.parallel,
    )
    network, dropped = build(asked, labels)
    print(describe(network, measure(network)))
    for line in dropped.lines():
        print(f"graph     {line}")
    matching = matching_program(settings.format) if settings.match == "network" else None
    pipeline = options.pipeline or matching
    if pipeline:
        check_labels(dict.fromkeys(network.switches, pipeline), labels)
    pattern, first = options.address_pattern, options.first_port
    choices = SwitchSettings(
        addresses(pattern or PATTERN, network, first),
        addresses(pattern, network, first) if pattern else None,
        pipeline,
        options.max_rules,
    )
    spark = session.start("stackcast load_topology")
    lifecycle.hold_jvm(spark)
    tables = open_tables(spark, settings.tables)
    try:
        plan = compare(tables, network, choices)
    except TableError as error:
        if not options.dry_run or error.what != "MISSING":
            raise
        print(f"tables    {error.message}")
        return 0
    print(describe_plan(plan))
    if labels != settings.labels:
        log.warning(
            "the jobs of this deployment need spark.stackcast.label.bits=%d: it is %d here",
            options.label_bits,
            settings.label_bits,
        )
    if options.dry_run:
        return WOULD_REPLACE if plan.destroys and not options.replace else 0
    load(tables, plan, options.replace)
    log.info(
        "%s holds the network; jobs/retune_trees.py stores trees for it, jobs/refresh_switches.py "
        "fills its switches",
        tables.location,
    )
    return 0


def describe(network: Network, found: Measures) -> str:
    """Describes a network, for people."""
    ids = f"{found.links} directed links of {network.labels.max_id} that labels can name"
    degree = f"{found.least_degree} to {found.largest_degree}, {found.mean_degree:.2f} on average"
    if found.diameter is None:
        diameter = "none: failed links part the network"
    else:
        diameter = f"{'' if found.exact else 'at least '}{found.diameter}"
    lines = [
        f"network   {found.switches} switches, {found.hosts - found.publishers} hosts, "
        f"{found.publishers} publisher{'' if found.publishers == 1 else 's'}",
        f"links     {ids}; at most {found.most_ports} of {MAX_PORT} ports of a switch",
        f"degree    {degree}",
        f"diameter  {diameter}",
    ]
    if found.lightest != found.heaviest:
        lines.append(f"weights   {found.lightest:g} to {found.heaviest:g}")
    if found.failed:
        lines.append(f"failed    {found.failed} directed links")
    return "\n".join(lines)


def describe_plan(plan: Succession) -> str:
    """Describes what loading does to the tables, for people."""
    changes = {name: change for name, change in plan.changes.items() if change}
    said = "; ".join(f"{name} {change}" for name, change in changes.items())
    lines = [f"tables    {said or 'as they should be'}"]
    if plan.destroys:
        lines.append(f"links     {plan.kept_links} keep their id")
        if not plan.fresh:
            lines.append(
                "links     there are not enough new ids: switches take the network when no stream "
                "uses the old one any more (wider labels have room, or stop the streams and delete "
                "their rows in egress_ledger and network_versions)"
            )
    if plan.retired:
        lines.append(f"trees     {len(plan.retired)} lose links, and are retired with them")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
