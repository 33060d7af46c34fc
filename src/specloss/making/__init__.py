"""Making models: fetching them from wheels, distilling drafts, training the demo pair and its EAGLE-3 head."""
