"""The Bootstrap service: where prefill ranks register, and where decode servers and routers learn the topology."""
