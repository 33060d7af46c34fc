"""How a loaded model is called: the cache with rows of lengths of their own, the forward, and its probe."""
