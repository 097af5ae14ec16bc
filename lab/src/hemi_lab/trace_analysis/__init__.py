"""What request streams are like: large traces, read in parts and merged (docs/lab/traces.md)."""
