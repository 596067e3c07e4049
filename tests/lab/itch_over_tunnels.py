"""The main job, in a lab all of whose links between switches are tunnels."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from functools import partial

from tunnels import tunnelled

from jobs import itch_stream
from jobs.adapters.app import application
from jobs.embedded import lab
from lab.fabric.topologies import NetworkOptions, load_network
from udfs.network.network import Network


def islands(options: NetworkOptions) -> Network:
    network = load_network(options)
    return tunnelled(network, {x.id for x in network.links if x.neighbor in network.switches})


if __name__ == "__main__":
    lab.load_network = islands
    sys.exit(application.run(partial(itch_stream.deliver, take_over=False)))
