"""Making models: fetching, distilling drafts, training the demo pair and its EAGLE-3 head."""
