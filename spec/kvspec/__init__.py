"""kvspec: the executable specification of KV-cache memory for LLM serving engines."""
