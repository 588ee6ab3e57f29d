"""Tests of lagsplat_ns."""
