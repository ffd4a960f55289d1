"""The core that the asynchronous and the synchronous faces share. Private: may change with any version."""
