"""Known bugs of real engines, each a machine that differs from the specification by what the bug did."""
