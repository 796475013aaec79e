"""One file of Kafka client properties for two clients: the JVM's takes it as it is, librdkafka's are derived from it.

The file that `ACTIVITY_KAFKA_CONFIG` names is a Java properties file, such as Kafka's own tools take with
`--command-config`. The JVM's client takes it as it is. librdkafka knows no JAAS line and no trust store: it is given
the user, the password and the PEM files that these name. A file with librdkafka's names works the other way round, and
one with both has to say the same twice. What stands there is a secret: an error names a property and never its value.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from customer_activity.errors import SettingsError
from customer_activity.kafka import properties_file

VARIABLE = "ACTIVITY_KAFKA_CONFIG"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
# Mechanisms of a user and a password: the JAAS line and librdkafka's two names say the same.
MODULES = {"PLAIN": PLAIN_MODULE, "SCRAM-SHA-256": SCRAM_MODULE, "SCRAM-SHA-512": SCRAM_MODULE}
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

JAVA_ONLY = (
    "sasl.client.callback.",
    "sasl.jaas.config",
    "sasl.kerberos.kinit.cmd.java",
    "sasl.login.",
    "security.providers",
    "ssl.enabled.protocols",
    "ssl.engine.factory.class",
    "ssl.keymanager.algorithm",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.type",
    "ssl.protocol",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
    "ssl.truststore.",
)
LIBRDKAFKA_ONLY = (
    "sasl.kerberos.keytab",
    "sasl.kerberos.principal",
    "sasl.mechanisms",
    "sasl.oauthbearer.client.",
    "sasl.oauthbearer.method",
    "sasl.password",
    "sasl.username",
    "ssl.ca.",
    "ssl.certificate.",
    "ssl.key.location",
    "ssl.key.pem",
)
# Neither can be said to both clients.
REFUSED = {
    "enable.ssl.certificate.verification": "the JVM's client always verifies certificates: give it the CA instead",
    "ssl.cipher.suites": "the two clients name them differently: restrict them on the brokers",
}


class Clients(NamedTuple):
    """What each client is told: the JVM's by Java's names, and librdkafka."""

    java: dict[str, str]
    librdkafka: dict[str, str]

    def __repr__(self) -> str:
        """Show no value: passwords are among them."""
        return f"Clients of {len(self.java)} and {len(self.librdkafka)} properties"


def read(path: Path) -> dict[str, str]:
    """Read the file.

    Raises:
        SettingsError: it cannot be read, a line is not `name=value`, or a name stands there twice.
    """
    return properties_file.read(path, VARIABLE)


def of_both(given: dict[str, str], servers: str) -> Clients:
    """Make what each client is told out of the file's properties and the bootstrap servers of the settings.

    Raises:
        SettingsError: two properties contradict each other, one is missing or cannot be said to both clients, or a file
            that they name is not there.
    """
    if not given:
        return Clients({}, {})
    _check(given, servers)
    given = {name: value for name, value in given.items() if name != "bootstrap.servers"}
    java = {name: value for name, value in given.items() if not name.startswith(LIBRDKAFKA_ONLY)}
    other = {name: value for name, value in given.items() if not name.startswith(JAVA_ONLY)}
    _say_who(given, java, other)
    _say_whom_to_trust(given, java, other)
    _say_which_key(given, java, other)
    algorithm = given.get("ssl.endpoint.identification.algorithm")
    if algorithm is not None:  # switched off it is empty in Java, and a word here
        is_off = algorithm.lower() in ("", "none")
        java["ssl.endpoint.identification.algorithm"] = "" if is_off else algorithm
        other["ssl.endpoint.identification.algorithm"] = "none" if is_off else algorithm
    for name, value in {**java, **other}.items():
        if name.endswith(".location") and name.startswith("ssl.") and not Path(value).is_file():
            raise SettingsError(f"{VARIABLE}: {name}: there is no file {value}", remedy="name a file that is there")
    return Clients(java, other)


def _check(given: dict[str, str], servers: str) -> None:
    """Refuse what can be said to one client only, and what is set and would be overlooked."""
    for name, reason in REFUSED.items():
        if name in given:
            raise SettingsError(f"{VARIABLE}: {name} cannot be set", remedy=reason)
    if given.get("bootstrap.servers", servers) != servers:
        raise SettingsError(
            f"{VARIABLE}: bootstrap.servers differ from ACTIVITY_KAFKA_BOOTSTRAP_SERVERS",
            remedy="name them only there",
        )
    protocol = given.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise SettingsError(f"{VARIABLE}: Kafka has no such security.protocol", remedy=f"one of {', '.join(PROTOCOLS)}")
    for family in ("sasl", "ssl"):
        overlooked = next((name for name in given if name.startswith(f"{family}.")), None)
        if overlooked is not None and family.upper() not in protocol.split("_"):
            raise SettingsError(
                f"{VARIABLE}: {overlooked} is set, and security.protocol={protocol} ignores it",
                remedy="set security.protocol=SASL_SSL, or remove it",
            )


def _say_who(given: dict[str, str], java: dict[str, str], other: dict[str, str]) -> None:
    """Give both clients the mechanism, the user and the password."""
    if not given.get("security.protocol", "").upper().startswith("SASL_"):
        return
    names = ("sasl.mechanism", "sasl.mechanisms")
    said = {given[name] for name in names if name in given}
    if len(said) > 1:
        raise SettingsError(f"{VARIABLE}: {' and '.join(names)} differ", remedy="leave one of them out")
    if (mechanism := next(iter(said), None)) is None:
        raise SettingsError(f"{VARIABLE}: sasl.mechanism is missing", remedy="such as sasl.mechanism=SCRAM-SHA-512")
    java["sasl.mechanism"] = mechanism
    other.pop("sasl.mechanisms", None)
    other["sasl.mechanism"] = mechanism
    module = MODULES.get(mechanism)
    if module is None:  # tickets and tokens: each client has ways of its own, and the file names both
        return
    line = given.get("sasl.jaas.config")
    in_line = {} if line is None else properties_file.login(line, module)
    if in_line is None:
        raise SettingsError(
            f"{VARIABLE}: sasl.jaas.config is not {module} required username=… password=…; which {mechanism} needs",
            remedy="one login module, its options in double quotes, a semicolon at the end",
        )
    for option, name in (("username", "sasl.username"), ("password", "sasl.password")):
        if option in in_line and in_line[option] != given.get(name, in_line[option]):
            raise SettingsError(
                f"{VARIABLE}: {name} and the {option} of sasl.jaas.config differ", remedy="leave one of them out"
            )
        value = in_line.get(option, given.get(name))
        if not value:
            raise SettingsError(
                f"{VARIABLE}: {mechanism} needs a {option}, which is missing",
                remedy='such as sasl.jaas.config=… required username="…" password="…";',
            )
        other[name] = value
    if line is None:
        user, password = (properties_file.quoted(other[name]) for name in ("sasl.username", "sasl.password"))
        java["sasl.jaas.config"] = f"{module} required username={user} password={password};"


def _say_whom_to_trust(given: dict[str, str], java: dict[str, str], other: dict[str, str]) -> None:
    """Give both clients the certificates of the CAs."""
    location, kind = given.get("ssl.truststore.location"), given.get("ssl.truststore.type", "JKS").upper()
    ca = given.get("ssl.ca.location")
    for store in ("truststore", "keystore"):
        is_pem = given.get(f"ssl.{store}.type", "").upper() == "PEM"
        if is_pem and f"ssl.{store}.password" in given:
            raise SettingsError(
                f"{VARIABLE}: ssl.{store}.password is set, and a PEM file has none",
                remedy="leave it out; a key's own is ssl.key.password",
            )
    if "ssl.truststore.certificates" in given and ca is None:
        other.setdefault("ssl.ca.pem", given["ssl.truststore.certificates"])
    if location is not None and ca is None:
        if kind != "PEM":
            raise SettingsError(
                f"{VARIABLE}: ssl.truststore.location is a {kind} file, which one of the two clients cannot read",
                remedy="export its certificates as PEM (`keytool -exportcert -rfc`) and set ssl.truststore.type=PEM",
            )
        other["ssl.ca.location"] = location
    if ca is not None and location is None and "ssl.truststore.certificates" not in given:
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": ca}
    if ca is not None and location is not None and kind == "PEM" and not _are_equal(ca, location):
        raise SettingsError(
            f"{VARIABLE}: ssl.ca.location and ssl.truststore.location differ", remedy="leave one of them out"
        )


def _say_which_key(given: dict[str, str], java: dict[str, str], other: dict[str, str]) -> None:
    """Give both clients the certificate and the key that they show, where the brokers want one."""
    location, kind = given.get("ssl.keystore.location"), given.get("ssl.keystore.type", "JKS").upper()
    certificate, key = given.get("ssl.certificate.location"), given.get("ssl.key.location")
    for java_name, name in (
        ("ssl.keystore.certificate.chain", "ssl.certificate.pem"),
        ("ssl.keystore.key", "ssl.key.pem"),
    ):
        if java_name in given:
            other.setdefault(name, given[java_name])
    if location is not None and kind != "PKCS12":  # that one both read, by the same names
        for name in ("ssl.keystore.location", "ssl.keystore.password"):
            other.pop(name, None)
        if kind == "PEM":
            other.setdefault("ssl.certificate.location", location)
            other.setdefault("ssl.key.location", location)
        elif certificate is None:
            raise SettingsError(
                f"{VARIABLE}: ssl.keystore.location is a {kind} file, which one of the two clients cannot read",
                remedy="write key and certificates into one PEM file and set ssl.keystore.type=PEM",
            )
    if location is None and certificate is not None and "ssl.keystore.certificate.chain" not in given:
        if certificate != key:
            raise SettingsError(
                f"{VARIABLE}: ssl.certificate.location and ssl.key.location are two files, and the JVM reads one",
                remedy="write both into one file and set ssl.keystore.type=PEM and ssl.keystore.location",
            )
        java |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": certificate}


def _are_equal(one: str, other: str) -> bool:
    try:
        return one == other or Path(one).read_bytes() == Path(other).read_bytes()
    except OSError:  # the one that is missing is named in a moment
        return True
