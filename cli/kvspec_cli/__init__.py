"""The `kvspec` command: one module a command, each computing plain data first and printing it afterwards."""
