"""The portal: the view topic as a service and a page. A process of its own, which no stream needs.

It reads committed records of the view topic into a store of its own (`following`, `store`), knows how fresh that is
(`freshness`), and serves it (`routes`, `events`, `pages/`) to those who may see it (`access`). What it says of the
pipeline is what `activity status` and `activity quality` say (`pipeline`).

Only this package imports the web framework: it is installed by the extra `portal`.
"""
