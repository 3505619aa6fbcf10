"""The device path: whole operations predicated on the device, nothing that makes the host wait. Unverified on CUDA.

The code runs on any device; the tests run it on CPU tensors for its values and under FakeTensorMode with
`device="cuda"` for what would make the host wait. Only `report.Report.check` reads.
"""
