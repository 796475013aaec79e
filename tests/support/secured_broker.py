"""A broker that asks everybody who they are: SASL_SSL with SCRAM, a CA of its own, and rights that it keeps to."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from customer_activity.demo.broker import node
from customer_activity.kafka import acls, clients, topics
from customer_activity.settings import Settings
from support.waiting import until

MECHANISM = "SCRAM-SHA-512"
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
MARK = "Qx7w0rd"  # in every password, and where one was told
BROKER, ADMIN = "broker", "admin"
USERS = (BROKER, ADMIN, "pipeline", "traffic", "reader", "portal", "nobody")
DAY = timedelta(days=1)
Signed = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


def word_of(user: str) -> str:
    """Return a user's password, which holds what needs escaping, and which nothing may ever show."""
    return f'{MARK}\\of"{user}"=;'


def certificate(name: str, signer: Signed | None = None) -> Signed:
    """Return a key with its certificate: of a broker on this machine when a CA signs it, else of a CA."""
    key = ec.generate_private_key(ec.SECP256R1())
    own = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    ca, signs_with = signer or (None, key)
    now = datetime.now(UTC)
    here = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(own)
        .issuer_name(ca.subject if ca else own)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + DAY)
        .add_extension(x509.BasicConstraints(ca=ca is None, path_length=None), critical=True)
        .add_extension(here, critical=False)
        .sign(signs_with, hashes.SHA256())
    )
    return made, key


def make_certificates(folder: Path) -> Path:
    """Write the certificates of two CAs, `ca.pem` and `stranger.pem`; return the broker's, signed by the first one."""
    ca, stranger = certificate("ca"), certificate("stranger")
    for name, (made, _) in {"ca": ca, "stranger": stranger}.items():
        (folder / f"{name}.pem").write_bytes(made.public_bytes(Encoding.PEM))
    made, key = certificate("broker", ca)
    store = folder / "broker.pem"
    store.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + made.public_bytes(Encoding.PEM)
    )
    return store


def login(user: str, password: str) -> str:
    """Return a JAAS line as a properties file has it."""
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    return f'{MODULE} required username="{user}" password="{quoted}";'.replace("\\", "\\\\")


@dataclass(frozen=True)
class SecuredBroker:
    """The broker, as its administrator sees it.

    Attributes:
        settings: signed in as its administrator, who may do anything.
        folder: where certificates and properties files are.
    """

    settings: Settings
    folder: Path

    def file(self, user: str, *, password: str | None = None, ca: str = "ca") -> Path:
        """Write the file with which a user signs in, or is turned away: then another one each time.

        A process remembers for a while what a file's clients were told, and those of the test before may still be.
        """
        is_right = password is None and ca == "ca"
        count = len(list(self.folder.glob(f"{user}*.properties")))
        path = self.folder / f"{user if is_right else f'{user}-refused-{count}'}.properties"
        path.write_text(
            f"security.protocol=SASL_SSL\nsasl.mechanism={MECHANISM}\n"
            f"sasl.jaas.config={login(user, password or word_of(user))}\n"
            f"ssl.truststore.type=PEM\nssl.truststore.location={self.folder / f'{ca}.pem'}\n",
            encoding="utf-8",
        )
        path.chmod(0o600)
        return path

    def of(self, user: str, settings: Settings) -> Settings:
        """Return settings with which a user signs in."""
        return settings.model_copy(update={"kafka_config": self.file(user)})

    def prepare(self, settings: Settings) -> None:
        """Make the topics of settings and give each role to the user of its name."""
        admin = settings.model_copy(update={"kafka_config": self.settings.kafka_config})
        topics.check(admin, create=True)
        users = {"pipeline": "pipeline", "traffic": "traffic", "reader": "reader", "consumer": "portal"}
        for role, user in users.items():
            acls.grant(admin, acls.declared(admin, role, user), user)


@contextmanager
def serve(address: str, folder: Path) -> Iterator[SecuredBroker]:
    """Run the broker of the embedded one's jars; it has one listener for clients, which is secured."""
    keys = make_certificates(folder)
    settings = Settings(kafka_bootstrap_servers=address, broker_dir=folder, kafka_config=None)
    plain = node.configure(settings).read_text(encoding="utf-8").replace("PLAINTEXT://", "SASL_SSL://")
    properties = folder / "secured.properties"
    properties.write_text(
        f"{plain}listener.security.protocol.map=SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT\n"
        f"inter.broker.listener.name=SASL_SSL\n"
        f"sasl.enabled.mechanisms={MECHANISM}\nsasl.mechanism.inter.broker.protocol={MECHANISM}\n"
        f"listener.name.sasl_ssl.{MECHANISM.lower()}.sasl.jaas.config={login(BROKER, word_of(BROKER))}\n"
        f"ssl.keystore.type=PEM\nssl.keystore.location={keys}\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={folder / 'ca.pem'}\n"
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
        f"super.users=User:{BROKER};User:{ADMIN};User:ANONYMOUS\n",  # nameless is the controller's listener alone
        encoding="utf-8",
    )
    words = [f"--add-scram={MECHANISM}=[name={user},password={word_of(user)}]" for user in USERS]
    made = SecuredBroker(settings, folder)
    own = SecuredBroker(made.of(ADMIN, settings), folder)
    with running(own.settings, properties, *words):
        yield own


@contextmanager
def running(settings: Settings, properties: Path, *words: str, options: tuple[str, ...] = ()) -> Iterator[None]:
    """Format the storage and run a broker until whoever the settings sign in is answered.

    Args:
        settings: where the jars are, and who waits.
        properties: the broker's own.
        words: what the storage is formatted with besides.
        options: of the JVM.
    """
    java = [*node.java(settings), *options]
    cluster = "it8vdMGGS3CJpvLOvkKKLw"
    line = [*java, "kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "--config", str(properties), *words]
    subprocess.run(line, check=True, capture_output=True)
    path = properties.with_suffix(".log")
    with path.open("wb") as log:
        broker = subprocess.Popen([*java, "-Xmx512m", "kafka.Kafka", str(properties)], stdout=log, stderr=log)
    try:
        until(lambda: broker.poll() is not None or clients.is_answering(settings), 90)
        assert broker.poll() is None, path.read_text(encoding="utf-8")[-2000:]
        yield
    finally:
        broker.terminate()
        broker.wait(30)
