"""The only spark-submit target: `spark-submit jobs/run.py stream --available-now` works without installing."""

from customer_activity.cli import main

if __name__ == "__main__":
    main()
