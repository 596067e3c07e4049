"""A broker that has listeners with TLS in addition to the open one."""

from __future__ import annotations

from pathlib import Path

import certificates
from kafka import KafkaAdminClient
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ResourcePattern,
    ResourceType,
    UserScramCredentialUpsertion,
)
from ports import free_port
from quick_broker import QuickBroker

_SECURITY = "org.apache.kafka.common.security"
_COMMON = f"""
ssl.keystore.type=PEM
ssl.truststore.type=PEM
ssl.truststore.location={{folder}}/ca.pem
ssl.keystore.location={{folder}}/server.both.pem
listener.name.expired.ssl.keystore.location={{folder}}/expired.both.pem
listener.name.ssl.ssl.client.auth=required
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512
listener.name.sasl_ssl.plain.sasl.jaas.config={_SECURITY}.plain.PlainLoginModule required \
username="u" password="p" user_u="p";
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config={_SECURITY}.scram.ScramLoginModule required;
"""
_ACLS = """
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
"""


class SecuredBroker(QuickBroker):
    """A broker with three secured listeners.

    Its folder contains ``ca.pem`` and, for clients, ``client.both.pem``.

    Attributes:
        secured: port that requires a login; the user u has the password p.
        mutual: port that requires a certificate.
        expired: port with an expired certificate.
        acls: users have only the rights that `allow` grants.
    """

    secured = mutual = expired = 0
    acls = False

    def _write_properties(self, port: int, controller: int) -> Path:
        path = super()._write_properties(port, controller)
        if not self.secured:
            self.secured, self.mutual, self.expired = (free_port() for _ in range(3))
            certificates.make(self.folder)
        plain = f"PLAINTEXT://127.0.0.1:{port}"
        ports = (("SASL_SSL", self.secured), ("SSL", self.mutual), ("EXPIRED", self.expired))
        more = "".join(f",{name}://127.0.0.1:{number}" for name, number in ports)
        text = path.read_text().replace(plain, plain + more)
        text = text.replace("map=", "map=SASL_SSL:SASL_SSL,SSL:SSL,EXPIRED:SSL,")
        text += _COMMON.format(folder=self.folder) + (_ACLS if self.acls else "")
        path.write_text(text)
        return path

    def login(self, mechanism: str = "PLAIN", user: str = "u", password: str = "p") -> dict:
        """Returns options of the Java client for the port ``secured``."""
        kind = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
        return {
            **self.tls(self.secured),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f"{_SECURITY}.{kind}LoginModule required "
            f'username="{user}" password="{password}";',
        }

    def tls(self, port: int, certificate: str = "", authority: str = "ca") -> dict[str, str]:
        """Returns options of the Java client for a port with TLS.

        Args:
            port: port of the broker.
            certificate: name of the client's certificate; empty for none.
            authority: name of the authority that the client trusts.
        """
        key = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.folder / f"{certificate}.both.pem"),
        }
        return {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.folder / f"{authority}.pem"),
            **(key if certificate else {}),
        }

    def add_user(self, user: str, password: str) -> None:
        """Add a user with SCRAM-SHA-512."""
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap_servers)
        try:
            credential = UserScramCredentialUpsertion(user, "SCRAM-SHA-512", password)
            admin.alter_user_scram_credentials([credential])
        finally:
            admin.close()

    def allow(self, principal: str, topic: str, *operations: str) -> None:
        """Grant ``User:principal`` some operations on a topic."""
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap_servers)
        try:
            admin.create_acls(
                [
                    ACL(
                        principal=f"User:{principal}",
                        host="*",
                        operation=ACLOperation[operation],
                        permission_type=ACLPermissionType.ALLOW,
                        resource_pattern=ResourcePattern(ResourceType.TOPIC, topic),
                    )
                    for operation in operations
                ]
            )
        finally:
            admin.close()
