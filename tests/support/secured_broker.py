"""A broker that asks everybody who they are: SASL_SSL with SCRAM, a CA of its own, and rights that it keeps to."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from customer_activity.demo.broker import node
from customer_activity.kafka import acls, clients, topics
from customer_activity.settings import Settings
from support.waiting import until

MECHANISM = "SCRAM-SHA-512"
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
STORE_WORD = "store-word"
MARK = "Qx7w0rd"  # in every password, and where one was told
BROKER, ADMIN = "broker", "admin"
USERS = (BROKER, ADMIN, "pipeline", "traffic", "reader", "portal", "nobody")


def word_of(user: str) -> str:
    """Return a user's password, which holds what needs escaping, and which nothing may ever show."""
    return f'{MARK}\\of"{user}"=;'


def keytool(folder: Path, *words: str) -> None:
    """Run Java's own tool for keys, which is wherever Java is."""
    subprocess.run(
        [shutil.which("keytool") or "keytool", *words, "-storetype", "PKCS12", "-storepass", STORE_WORD],
        cwd=folder,
        check=True,
        capture_output=True,
    )


def make_ca(folder: Path, name: str) -> Path:
    """Make a CA; return its certificate in PEM."""
    keys = ("-genkeypair", "-alias", "ca", "-keyalg", "EC", "-dname", f"CN={name}", "-ext", "bc:c=ca:true")
    keytool(folder, "-keystore", f"{name}.p12", *keys)
    keytool(folder, "-keystore", f"{name}.p12", "-exportcert", "-rfc", "-alias", "ca", "-file", f"{name}.pem")
    return folder / f"{name}.pem"


def make_certificate(folder: Path, ca: str) -> Path:
    """Make a broker's key with a certificate of a CA; return their key store."""
    store = ("-keystore", "broker.p12", "-alias", "broker")
    keytool(folder, *store, "-genkeypair", "-keyalg", "EC", "-dname", "CN=broker")
    keytool(folder, *store, "-certreq", "-file", "broker.csr")
    names = ("-ext", "san=ip:127.0.0.1,dns:localhost")
    request = ("-infile", "broker.csr", "-outfile", "broker.pem", "-rfc")
    keytool(folder, "-keystore", f"{ca}.p12", "-gencert", "-alias", "ca", *names, *request)
    keytool(folder, "-keystore", "broker.p12", "-importcert", "-noprompt", "-alias", "ca", "-file", f"{ca}.pem")
    keytool(folder, *store, "-importcert", "-noprompt", "-file", "broker.pem")
    return folder / "broker.p12"


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

    def file(self, user: str, *, password: str | None = None, ca: str = "ca", name: str | None = None) -> Path:
        """Write the file with which a user signs in."""
        path = self.folder / f"{name or user}.properties"
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
    make_ca(folder, "ca")
    make_ca(folder, "stranger")
    keys = make_certificate(folder, "ca")
    settings = Settings(kafka_bootstrap_servers=address, broker_dir=folder, kafka_config=None)
    plain = node.configure(settings).read_text(encoding="utf-8").replace("PLAINTEXT://", "SASL_SSL://")
    properties = folder / "secured.properties"
    properties.write_text(
        f"{plain}listener.security.protocol.map=SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT\n"
        f"inter.broker.listener.name=SASL_SSL\n"
        f"sasl.enabled.mechanisms={MECHANISM}\nsasl.mechanism.inter.broker.protocol={MECHANISM}\n"
        f"listener.name.sasl_ssl.{MECHANISM.lower()}.sasl.jaas.config={login(BROKER, word_of(BROKER))}\n"
        f"ssl.keystore.type=PKCS12\nssl.keystore.location={keys}\nssl.keystore.password={STORE_WORD}\n"
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
