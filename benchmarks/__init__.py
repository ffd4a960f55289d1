"""Benchmarks, each run as `python -m benchmarks.NAME [--json] [--peers DIR] [--quick]`.

Each measures us and the peer by turns in one run and checks that both gave the same bytes. Ratios are the result;
milliseconds are colour.
"""
