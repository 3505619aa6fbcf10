"""What a cache keeps of each member, on tensors, and the form of its parts."""
