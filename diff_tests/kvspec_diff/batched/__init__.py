"""Engines that are asked many cases at a time: the client, faults, findings, cases made small."""
