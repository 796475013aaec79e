"""The demonstration, for laptops and tests: a broker, traffic, a local Airflow and a live view."""
