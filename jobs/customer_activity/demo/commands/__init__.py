"""The commands and checks that the demonstration adds to `activity`; `commands/extras.py` looks them up here."""

COMMANDS = {
    "broker": "customer_activity.demo.commands.broker:app",  # its commands join those of the group that is there
    "produce": "customer_activity.demo.commands.traffic:produce",
    "airflow": "customer_activity.demo.commands.airflow:app",
    "run": "customer_activity.demo.commands.run:run",
    "stop": "customer_activity.demo.commands.run:stop",
}
CHECKS = {"port": "customer_activity.demo.broker.checks:port"}  # of `activity doctor`
