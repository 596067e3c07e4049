"""Virtual trees that a network's stacks may name, as arrays for the kernels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

import numpy as np

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.virtual_tree import VirtualTree, check_ids, stored, tree_ports
from stackcast.udfs.trees.kernels.arrays import WORD, Forest
from stackcast.udfs.trees.switch_graph import SwitchGraph


class StoredTrees:
    """The active trees, ascending by id: ``ids`` and, in the same order, ``forest``.

    Raises NetworkError ``UNKNOWN_LINK`` (a tree's edge), ``DUPLICATE_TREE`` and ``BAD_TREE_ID`` (an
    id that the network's labels have no room for), of trees in any state but retired.
    """

    def __init__(self, network: Network, graph: SwitchGraph, trees: Iterable[VirtualTree]) -> None:
        every = sorted(stored(trees), key=lambda tree: tree.id)
        check_ids(every, network.labels)
        ports = [tree_ports(network, tree) for tree in every]
        for tree, after in pairwise(every):
            if tree.id == after.id:
                raise NetworkError(
                    "DUPLICATE_TREE", f"two virtual trees have the id {tree.id}", tree=tree.id
                )
        active = [(t, p) for t, p in zip(every, ports, strict=True) if t.state == "active"]
        self.ids: tuple[int, ...] = tuple(tree.id for tree, _ in active)
        masks = [sorted(_words(graph, p)) for _, p in active]
        links = [sorted(graph.links_over(tree.edges)) for tree, _ in active]
        word = np.array([word for each in masks for word, _ in each], np.int64)
        mask = np.array([mask for each in masks for _, mask in each], np.int64)
        numbers = np.repeat(np.arange(len(masks), dtype=np.int64), [len(each) for each in masks])
        by_word = np.argsort(word, kind="stable")
        counts = np.bincount(word, minlength=graph.links.more[-1])
        self.forest = Forest(
            _offsets(masks),
            word,
            mask,
            _offsets(links),
            np.array([link for each in links for link in each], np.int32),
            np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
            numbers[by_word],
            mask[by_word],
        )


def _words(graph: SwitchGraph, ports: Mapping[str, int]) -> Iterator[tuple[int, int]]:
    """Yields the ports of each switch by words, those that have some."""
    for name, mask in ports.items():
        for before in range(0, mask.bit_length(), WORD):
            some = mask >> before & (1 << WORD) - 1
            if some:
                yield graph.word_of(graph.index[name], before + 1)[0], some


def _offsets(lists: list[list[tuple[int, int]]] | list[list[int]]) -> np.ndarray:
    return np.concatenate(([0], np.cumsum([len(each) for each in lists]))).astype(np.int64)
