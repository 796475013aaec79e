"""What the streams are to one another: each declares a `Spec` in its own module, and everybody else asks here.

Whoever needs the topology (turns, status, quality's pins, VACUUM's guard, leases, `describe`) derives it from the specs
and names no stream. The specs come from the registry, which is looked up by its name when somebody asks first, as a
plugin is: layers below the streams know of them by their specs alone, and import none.

Optional streams are known and take part in nothing until a deployment switches them on by name, for the whole process
(`switch_on`); what they read comes with them.
"""

from __future__ import annotations

from customer_activity.topology.declared import Edge, End, How, Made, Reads, Spec, Topic, Writes
from customer_activity.topology.streams import (
    behind,
    chosen,
    edges,
    following,
    hot_path,
    install,
    judging,
    landing,
    landings,
    names,
    off,
    optional,
    published_roles,
    publishers,
    publishing,
    readers,
    rebuilt,
    reflected,
    roles,
    spec,
    specs,
    switch_on,
    switched_on,
    tables,
    upstream,
    with_followers,
    writers,
)

__all__ = [
    "Edge",
    "End",
    "How",
    "Made",
    "Reads",
    "Spec",
    "Topic",
    "Writes",
    "behind",
    "chosen",
    "edges",
    "following",
    "hot_path",
    "install",
    "judging",
    "landing",
    "landings",
    "names",
    "off",
    "optional",
    "published_roles",
    "publishers",
    "publishing",
    "readers",
    "rebuilt",
    "reflected",
    "roles",
    "spec",
    "specs",
    "switch_on",
    "switched_on",
    "tables",
    "upstream",
    "with_followers",
    "writers",
]
