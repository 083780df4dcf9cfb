"""Measured peaks: there are some, and they are measured once."""

from pytensor_cl.routines.peak import measure_peak


def test_peak(context):
    peak = measure_peak(context)
    assert peak.bytes_per_second > 0 and peak.flops["float32"] > 0
    assert ("float64" in peak.flops) == context.info.has_fp64
    assert measure_peak(context) is peak
