"""Where cells run: the Ray head, actors that hold pairs, and decode jobs."""
