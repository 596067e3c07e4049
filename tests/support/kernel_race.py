"""Workers that compile the same kernels into one cache at once, and are killed meanwhile.

    python tests/support/kernel_race.py list KERNELS
    python tests/support/kernel_race.py race KERNELS ROUNDS
    python tests/support/kernel_race.py check KERNELS

``list`` compiles everything that the streams need, and writes the kernels with their signatures to
the file KERNELS. ``race`` compiles another share of them in each round. ``check`` ends with an
error if the cache has no code for some kernels; the error has their number. The cache is numba's,
in NUMBA_CACHE_DIR.
"""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import pickle
import random
import sys
import time
from pathlib import Path
from typing import Any

from numba.core.dispatcher import Dispatcher

from stackcast.udfs.delivery import kernel_cache

#: Module, name and signature of a kernel.
Kernel = tuple[str, str, tuple]
WORKERS = 8
#: Workers that are killed per round, each of which another one replaces.
KILLED = 4
LONGEST_LIFE_S = 3.0


def all_kernels() -> list[Kernel]:
    """Returns the kernels that the streams need, once per signature."""
    kernel_cache.warm_up()
    kernel_cache._all_but_the_encoder()
    kernels = []
    for dispatcher in [each for each in gc.get_objects() if isinstance(each, Dispatcher)]:
        module, name = dispatcher.py_func.__module__, dispatcher.py_func.__qualname__
        if module.startswith("stackcast.udfs.") and "<" not in name:
            kernels += [(module, name, signature) for signature in dispatcher.signatures]
    return sorted(kernels, key=repr)


def compile_kernels(kernels: list[Kernel], seed: int = 0) -> int:
    """Compiles kernels in random order, or loads them; returns how many were not in the cache."""
    misses = 0
    for module, name, signature in random.Random(seed).sample(kernels, len(kernels)):
        dispatcher = getattr(importlib.import_module(module), name)
        dispatcher.compile(signature)
        misses += dispatcher.stats.cache_misses.get(signature, 0)
    return misses


def fail_unless_cached(kernels: list[Kernel]) -> None:
    if misses := compile_kernels(kernels):
        sys.exit(f"{misses} of {len(kernels)} kernels are not in the cache")


def race(kernels: list[Kernel], rounds: int) -> None:
    """Runs the rounds; fails if a worker fails, or if the cache does not become complete."""
    draw = random.Random(5)
    # A worker is a fork, so that it needs no time to import the modules.
    context: Any = multiprocessing.get_context("fork")

    def start(function: Any, *arguments: Any) -> Any:
        process = context.Process(target=function, args=arguments)
        process.start()
        return process

    def end(worker: Any) -> None:
        worker.join()
        if worker.exitcode:
            sys.exit(f"round {number}: a worker ended with {worker.exitcode}")

    for number in range(rounds):
        share = kernels[number::rounds]
        workers = [start(compile_kernels, share, draw.random()) for _ in range(WORKERS)]
        began = time.monotonic()
        for death in sorted(draw.uniform(0.0, LONGEST_LIFE_S) for _ in range(KILLED)):
            time.sleep(max(0.0, began + death - time.monotonic()))
            victim = draw.randrange(WORKERS)
            workers[victim].kill()
            workers[victim] = start(compile_kernels, share, draw.random())
        for worker in workers:
            end(worker)
        # If two workers save code at the same moment, one entry may be lost.
        end(start(compile_kernels, share))
        end(start(fail_unless_cached, share))
        print(f"round {number}: {len(share)} kernels", flush=True)


def main(command: str, file: str, *rounds: str) -> None:
    if command == "list":
        Path(file).write_bytes(pickle.dumps(all_kernels()))
        return
    kernels = pickle.loads(Path(file).read_bytes())
    if command == "race":
        race(kernels, *map(int, rounds))
    else:
        fail_unless_cached(kernels)
        fail_unless_cached(all_kernels())


if __name__ == "__main__":
    main(*sys.argv[1:])
