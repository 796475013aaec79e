"""One file for both of Kafka's clients: what each is told, and what is refused without telling a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from customer_activity.errors import SettingsError
from customer_activity.kafka import client_properties, clients
from customer_activity.settings import PROJECT, Settings

SERVERS = "kafka:9093"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
WORD = "s3cret-word"
SSL, PLAIN_SSL = "security.protocol=SSL\n", "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
SIGN_IN = f"""
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config={SCRAM} required username="anna" password="{WORD}";
"""
TRUST = "ssl.truststore.type=PEM\nssl.truststore.location=CA\n"


def told(text: str, folder: Path) -> client_properties.Clients:
    """What the clients are told by a file; CA, KEY and OTHER are files that are there."""
    for name in ("CA", "KEY", "OTHER"):
        (folder / name).write_text(f"{name} of {WORD}", encoding="utf-8")
        text = text.replace(f"location={name}", f"location={folder / name}")
    path = folder / "client.properties"
    path.write_text(text, encoding="utf-8")
    return clients.security(Settings(kafka_bootstrap_servers=SERVERS, kafka_config=path))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(SIGN_IN + TRUST, id="Java's names"),
        pytest.param(
            "security.protocol=SASL_SSL\nsasl.mechanisms=SCRAM-SHA-512\nsasl.username=anna\n"
            f"sasl.password={WORD}\nssl.ca.location=CA\n",
            id="librdkafka's names",
        ),
        pytest.param(
            f"{SIGN_IN}{TRUST}sasl.username=anna\nsasl.password={WORD}\nssl.ca.location=CA\n", id="both, as before"
        ),
        pytest.param(f"{SIGN_IN}{TRUST}ssl.ca.location=OTHER\n".replace("OTHER", "CA"), id="the CA twice"),
        pytest.param(f"{SIGN_IN}{TRUST}bootstrap.servers={SERVERS}\n", id="with the brokers"),
    ],
)
def test_both_clients_are_told_the_same(text: str, tmp_path: Path) -> None:
    java, other = told(text, tmp_path)
    assert java == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{SCRAM} required username="anna" password="{WORD}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tmp_path / "CA"),
    }
    assert other == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "anna",
        "sasl.password": WORD,
        "ssl.ca.location": str(tmp_path / "CA"),
    }


@pytest.mark.parametrize(
    ("written", "user", "password"),
    [
        pytest.param(r'required username="anna" password="a b;c=d";', "anna", "a b;c=d", id="marks inside quotes"),
        pytest.param(r'required password="x" username="anna";', "anna", "x", id="the other way round"),
        pytest.param("required username='anna' password='x\"y';", "anna", 'x"y', id="single quotes"),
        pytest.param(r'required username=anna password="x" ;', "anna", "x", id="without quotes"),
        pytest.param('required \\\n   username="anna" \\\n   password="x";', "anna", "x", id="over three lines"),
        pytest.param(r'required username="anna" password="a\\\\b\\"c";', "anna", r'a\b"c', id="escaped in both forms"),
        pytest.param(r'optional username="anna" password="\u00e9";', "anna", "é", id="by its number"),
        pytest.param('required username="anna" password="x" tokenauth="false";', "anna", "x", id="with another option"),
    ],
)
def test_the_user_is_read_out_of_the_line_of_the_login_module(
    written: str, user: str, password: str, tmp_path: Path
) -> None:
    _, other = told(f"{PLAIN_SSL}sasl.jaas.config={PLAIN} {written}\n", tmp_path)
    assert (other["sasl.username"], other["sasl.password"]) == (user, password)


@pytest.mark.parametrize("password", ['a"b', "a\\\\b", "ends with \\\\", "it's", "a;b=c", "ü"])
def test_a_password_comes_back_out_of_the_line_that_is_made_of_it(password: str, tmp_path: Path) -> None:
    first = told(f"{PLAIN_SSL}sasl.username=anna\nsasl.password={password}\n", tmp_path)
    line = first.java["sasl.jaas.config"].replace("\\", "\\\\")  # as a properties file has it
    assert told(f"{PLAIN_SSL}sasl.jaas.config={line}\n", tmp_path) == first


@pytest.mark.parametrize(
    ("lines", "java", "other"),
    [
        pytest.param(
            "keystore.type=PEM keystore.location=KEY key.password=p",
            "keystore.type keystore.location key.password",
            "certificate.location key.location key.password",
            id="in PEM",
        ),
        pytest.param(
            "keystore.type=PKCS12 keystore.location=KEY keystore.password=p",
            "keystore.type keystore.location keystore.password",
            "keystore.location keystore.password",
            id="in PKCS 12, which both read",
        ),
        pytest.param(
            "certificate.location=KEY key.location=KEY",
            "keystore.type keystore.location",
            "certificate.location key.location",
            id="by librdkafka's names",
        ),
        pytest.param(
            "keystore.location=KEY keystore.password=p certificate.location=CA key.location=OTHER",
            "keystore.location keystore.password",
            "certificate.location key.location",
            id="a Java key store, and PEM for the other, as before",
        ),
        pytest.param(
            "truststore.location=OTHER truststore.password=p ca.location=CA",
            "truststore.location truststore.password",
            "ca.location",
            id="a Java trust store, and PEM for the other, as before",
        ),
        pytest.param(
            "truststore.type=PEM truststore.certificates=text",
            "truststore.type truststore.certificates",
            "ca.pem",
            id="certificates in the file itself",
        ),
    ],
)
def test_keys_and_certificates(lines: str, java: str, other: str, tmp_path: Path) -> None:
    """All names are below `ssl.`."""
    text = "".join(f"ssl.{line}\n" for line in lines.split())
    said = [{"security.protocol", *(f"ssl.{name}" for name in names.split())} for names in (java, other)]
    assert [*map(set, told(f"{SSL}{text}", tmp_path))] == said


@pytest.mark.parametrize(
    ("given", "java", "other"),
    [("", "", "none"), ("none", "", "none"), ("https", "https", "https")],
    ids=["switched off as in Java", "switched off as in librdkafka", "on"],
)
def test_whether_the_brokers_name_is_looked_at(given: str, java: str, other: str, tmp_path: Path) -> None:
    name = "ssl.endpoint.identification.algorithm"
    both = told(f"{SSL}{name}={given}\n", tmp_path)
    assert (both.java[name], both.librdkafka[name]) == (java, other)


WHOLE_FILES = [
    pytest.param(
        f"{SIGN_IN}{TRUST}ssl.ca.location=OTHER\n", "ssl.ca.location and ssl.truststore.location differ", id="two CAs"
    ),
    pytest.param(
        SIGN_IN.replace("SCRAM-SHA-512", "PLAIN"), "sasl.jaas.config is not .*PlainLoginModule", id="another module"
    ),
    pytest.param(SIGN_IN.replace('";', '"'), "sasl.jaas.config is not", id="no semicolon"),
    pytest.param(
        SIGN_IN.replace(f'password="{WORD}"', f'password="{WORD}'), "sasl.jaas.config is not", id="no end of quotes"
    ),
    pytest.param(SIGN_IN.replace(f' password="{WORD}"', ""), "needs a password", id="no password"),
    pytest.param("security.protocol=SASL_SSL\n", "sasl.mechanism is missing", id="no mechanism"),
    pytest.param(SIGN_IN.replace("SASL_SSL", "SASL_SSSL"), "Kafka has no such security.protocol", id="no protocol"),
    pytest.param(
        SIGN_IN.replace("SASL_SSL", "SSL"),
        "sasl.mechanism is set, and security.protocol=SSL ignores it",
        id="SASL that is overlooked",
    ),
    pytest.param(
        f"sasl.password={WORD}\n",
        "sasl.password is set, and security.protocol=PLAINTEXT ignores it",
        id="a password and no protocol",
    ),
    pytest.param(
        f"{SIGN_IN}{TRUST}".replace("SASL_SSL", "SASL_PLAINTEXT"),
        "security.protocol=SASL_PLAINTEXT ignores it",
        id="TLS that is overlooked",
    ),
    pytest.param(
        f"{SIGN_IN}{TRUST}ssl.truststore.password={WORD}\n", "a PEM file has none", id="a PEM file with a password"
    ),
    pytest.param(
        f'{SIGN_IN}  password="{WORD}";\n'.replace("password=", "PASSWORD="),
        "line 5 is not name=value",
        id="a backslash forgotten",
    ),
]
# A line that is added to a file that says how to sign in.
ADDED_LINES = [
    pytest.param("sasl.username=berta", "sasl.username and the username of sasl.jaas.config differ", id="two users"),
    pytest.param(f"sasl.password=other-{WORD}", "sasl.password and the password of", id="two passwords"),
    pytest.param("sasl.mechanisms=PLAIN", "sasl.mechanism and sasl.mechanisms differ", id="two mechanisms"),
    pytest.param("bootstrap.servers=other:9093", "bootstrap.servers differ from", id="other brokers"),
    pytest.param("ssl.truststore.location=CA", "ssl.truststore.location is a JKS file", id="a Java trust store alone"),
    pytest.param("ssl.keystore.location=KEY", "ssl.keystore.location is a JKS file", id="a Java key store alone"),
    pytest.param("ssl.certificate.location=CA\nssl.key.location=KEY", "are two files", id="key and certificate apart"),
    pytest.param("ssl.ca.location=nowhere.pem", "there is no file nowhere.pem", id="a file that is not there"),
    pytest.param("enable.ssl.certificate.verification=false", "cannot be set", id="certificates not looked at"),
    pytest.param("ssl.cipher.suites=X", "cannot be set", id="suites of ciphers"),
    pytest.param("sasl.mechanism=PLAIN", "line 5 gives sasl.mechanism a second time", id="a name twice"),
    pytest.param(f"{WORD}", "line 5 is not name=value", id="a word alone"),
    pytest.param(f"MIIEv{WORD}==", "line 5 is not name=value", id="a line of a key"),
]


def refused(text: str, words: str, folder: Path) -> None:
    """See a file refused by name, and not what is secret in it told."""
    with pytest.raises(SettingsError, match=words) as raised:
        told(text, folder)
    assert "ACTIVITY_KAFKA_CONFIG" in raised.value.what
    assert raised.value.remedy
    assert WORD not in str(raised.value)


@pytest.mark.parametrize(("text", "words"), WHOLE_FILES)
def test_what_contradicts_itself_is_refused_by_name(text: str, words: str, tmp_path: Path) -> None:
    refused(text, words, tmp_path)


@pytest.mark.parametrize(("line", "words"), ADDED_LINES)
def test_a_line_that_contradicts_the_others_is_refused_by_name(line: str, words: str, tmp_path: Path) -> None:
    refused(f"{SIGN_IN}{line}\n", words, tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("sasl.pasword", id="a name that is none"),
        pytest.param("socket.timeout.ms", id="a value that is no number"),
        pytest.param("ssl.endpoint.identification.algorithm", id="a value that is none of those there are"),
    ],
)
def test_what_the_client_does_not_take_is_told_without_the_value(name: str, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(f"{SIGN_IN}{name}={WORD}\n", encoding="utf-8")
    settings = Settings(kafka_bootstrap_servers=SERVERS, kafka_config=path)
    for make in (clients.admin, clients.reader, clients.producer):
        with pytest.raises(SettingsError, match=name) as raised:
            make(settings)
        assert WORD not in str(raised.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"No such file or directory: .*absent"):
        clients.security(Settings(kafka_config=tmp_path / "absent"))
    (tmp_path / "latin").write_bytes("sasl.password=é".encode("latin-1"))
    with pytest.raises(SettingsError, match="is not UTF-8"):
        clients.security(Settings(kafka_config=tmp_path / "latin"))


def test_without_a_file_nothing_is_said() -> None:
    assert clients.security(Settings(kafka_config=None)) == ({}, {})


def test_spark_is_told_javas(tmp_path: Path) -> None:
    java, _ = told(SIGN_IN + TRUST, tmp_path)
    options = clients.spark_options(
        Settings(kafka_bootstrap_servers=SERVERS, kafka_config=tmp_path / "client.properties")
    )
    assert options == {"kafka.bootstrap.servers": SERVERS, **{f"kafka.{name}": value for name, value in java.items()}}


def test_the_sample_is_one_that_is_taken(tmp_path: Path) -> None:
    text = (PROJECT / "infra" / "kafka" / "client.properties.sample").read_text(encoding="utf-8")
    java, other = told(text.replace("/etc/customer-activity/kafka-ca.pem", "CA"), tmp_path)
    assert (java["sasl.mechanism"], other["sasl.username"]) == ("SCRAM-SHA-512", "customer-activity")
