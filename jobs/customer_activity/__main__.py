"""`python -m customer_activity`: the command line, for the processes that a command starts."""

from customer_activity.cli import main

if __name__ == "__main__":
    main()
