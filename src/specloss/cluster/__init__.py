"""Where cells run: a Ray head of our own (or a given cluster), a pool of actors that hold pairs, and the decode job."""
