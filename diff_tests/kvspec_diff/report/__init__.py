"""What was proved and found, for people and for other tools: one HTML file, ITF traces, GitHub annotations."""
