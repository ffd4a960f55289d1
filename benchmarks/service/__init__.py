"""The Preprocess service beside what a frontend does in its own process: `python -m benchmarks.service`."""
