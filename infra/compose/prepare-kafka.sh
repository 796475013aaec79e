#!/usr/bin/env bash
# Before the driver starts: the topics, and what each user of infra/compose/secrets.sh may do with them. Signed in as
# Kafka's administrator; does nothing where all is there.
set -euo pipefail
activity broker topics
activity broker acls pipeline activity
activity broker acls traffic producers
activity broker acls portal portal
