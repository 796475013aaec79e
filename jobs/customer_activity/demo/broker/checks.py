"""What `activity doctor` looks at for the embedded broker."""

from __future__ import annotations

from customer_activity.demo.broker import node, process
from customer_activity.kafka import clients
from customer_activity.settings import Settings


def port(settings: Settings) -> str:
    """Whether the embedded broker could listen where clients look for it.

    Raises:
        ActivityError: something that is not Kafka has the port, or the address is not one that it can listen on.
    """
    servers = settings.kafka_bootstrap_servers
    if not clients.is_on_this_machine(settings):
        return f"{servers} is a cluster elsewhere"
    if (broker := process.find(settings)) is not None:
        return f"{servers} is the embedded broker's (pid {broker.pid})"
    host, number = node.address(settings)
    if not node.is_taken(host, number):
        return f"{servers} is free"
    if clients.is_answering(settings):
        return f"{servers} is another Kafka broker's, which is used as it is"
    raise process.port_taken(host, number)
