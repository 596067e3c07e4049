"""A killed stream leaves no secret on disk."""

from __future__ import annotations

import base64
import dataclasses
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from crash_world import Program
from crashing_stream import Story
from paths import SUPPORT
from pcap_deployment import NETWORK, Deployment, records

from stackcast.jobs.adapters.app.local_folders import remove_leftovers
from stackcast.udfs.messages.summary_keys import SummaryKey

pytestmark = pytest.mark.integration

MASTER = SummaryKey(1, bytes(range(100, 132)))
PASSWORD = "a-password-of-32-letters-for-kafka"


def forms(secret: bytes) -> Iterator[bytes]:
    """Yield a secret in the forms that files may contain: bytes, hex, and base64 at any offset."""
    yield secret
    yield secret.hex().encode()
    yield secret.hex().upper().encode()
    for shift in range(3):
        encoded = base64.b64encode(bytes(shift) + secret)
        # The letters that have bits of this secret alone.
        yield encoded[4 if shift else 0 : len(encoded) // 4 * 4 - 4]


def files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


@pytest.mark.long
def test_after_sigkill_of_driver_jvm_and_workers_no_key_and_no_password_is_in_a_file(
    deployment: Deployment, tmp_path: Path
) -> None:
    keys, local = tmp_path / "keys", tmp_path / "local"
    keys.touch(0o600)
    keys.write_text(f"1 {MASTER.secret.hex()}\n")
    # Tasks get the password, although a connection without TLS does not need it.
    kafka = deployment.settings.kafka | {"ssl.key.password": PASSWORD}
    deployment.set(summary_keys=str(keys), kafka=kafka)
    deployment.publish(records()[:60])
    story = Story(
        dataclasses.asdict(deployment.settings) | {"given": []},
        "after batch",
        # By default, only large tasks go into files, as those of a plan with much state.
        conf=deployment.properties()
        | {"spark.local.dir": str(local), "spark.broadcast.UDFCompressionThreshold": "1"},
    )
    path = tmp_path / "story.json"
    path.write_text(json.dumps(dataclasses.asdict(story)))
    stream = Program(tmp_path, str(SUPPORT / "crashing_stream.py"), str(path))
    assert stream.end() == -signal.SIGKILL, stream.output[-4000:]
    assert "the stream runs" in stream.output
    path.unlink()
    keys.unlink()

    broadcasts = [path.relative_to(local) for path in files(local) if "pyspark-" in str(path)]
    assert broadcasts, "the driver's broadcasts are in files"
    hosts = [MASTER.for_host(host).secret for host in NETWORK.hosts]
    patterns = [
        form for secret in (*hosts, MASTER.secret, PASSWORD.encode()) for form in forms(secret)
    ]
    for path in files(tmp_path):
        content = path.read_bytes()
        assert not any(form in content for form in patterns), path

    remove_leftovers([local])
    assert not list(files(local)), "the next start removes the rest"
