"""Many objects of a bucket are looked at and deleted by several requests at once, and none is forgotten."""

from __future__ import annotations

from pyarrow import fs

from customer_activity.maintenance import listing
from customer_activity.storage import s3
from customer_activity.storage.filesystem import REQUESTS_AT_A_TIME, filesystem, infos, write_whole

COUNT = 2 * REQUESTS_AT_A_TIME + 1


def test_each_object_is_looked_at_and_deleted(s3_server: str) -> None:
    s3.client().create_bucket(Bucket="lake")
    names = [f"{number}.parquet" for number in range(COUNT)]
    for name in names[1:]:
        write_whole(f"s3a://lake/table/{name}", name.encode())
    files, folder = filesystem("s3a://lake/table")
    paths = [f"{folder}/{name}" for name in names]
    gone, *there = infos(files, paths)
    assert gone.type is fs.FileType.NotFound
    assert [(file.base_name, file.size) for file in there] == [(name, len(name)) for name in names[1:]]
    listing.delete(files, paths[2:])
    assert listing.names(files, folder) == ["1.parquet"]
