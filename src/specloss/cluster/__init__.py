"""Where cells run: a Ray head, a pool of actors that hold pairs, and the decode job."""
