"""The live run: starts broker, streams and traffic as processes of their own, watches them, and ends them."""
