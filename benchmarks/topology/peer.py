"""SGLang's compiled registry as a process of its own: `python -m benchmarks.topology.peer FOLDER PORT`.

It serves until its standard input ends, and so never longer than who started it.
"""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any


def load_extension(folder: Path) -> Any:
    """The extension module of the wheel that was unpacked into the folder."""
    (path,) = (folder / "sglang" / "srt" / "rust_extensions").glob("_server.*.so")
    spec = spec_from_file_location("_server", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_TEXTS = """
    model_path served_model_name tokenizer_path version weight_version accelerator load_format
    default_chat_template_kwargs deployment_info launch_server_info
"""
_NUMBERS = """
    tokenizer_worker_num detokenizer_worker_num max_total_num_tokens num_accelerators tokenizer_model_max_length
    load_snapshot_dp_size load_snapshot_dp_rank num_reserved_tokens
"""
_SWITCHES = """
    skip_tokenizer_init skip_server_warmup stream_response_default_include_usage enable_request_header_overrides
    incremental_streaming_output enable_strict_thinking enable_return_hidden_states allow_auto_truncate
"""
_OPTIONS = """
    revision hicache_storage_backend hicache_storage_backend_extra_config grpc_port log_level_http chat_template
    tool_call_parser reasoning_parser default_priority_value preferred_sampling_params default_max_new_tokens
    load_snapshot_path metrics
"""
"""Settings of an engine, all of which the constructor wants to have, and none of which the registry reads."""


def start(extension: Any, port: int) -> object:
    """Starts the server that the registry is a part of, on 127.0.0.1. It serves while the object lives."""
    model = extension.ModelConfig(
        context_len=1,
        vocab_size=1,
        is_multimodal=False,
        model_type=None,
        default_sampling_params=extension.DefaultSamplingParams(),
    )
    arguments = extension.ServerArgs(
        **dict.fromkeys(_TEXTS.split(), "{}"),
        **dict.fromkeys(_NUMBERS.split(), 1),
        **dict.fromkeys(_SWITCHES.split(), True),
        **dict.fromkeys(_OPTIONS.split()),
        host="127.0.0.1",
        port=port,
        log_level="warning",
        disaggregation_mode=extension.DisaggregationMode.Prefill,
        model_config=model,
        hicache_storage_prefetch_policy="best_effort",
        hicache_write_policy="write_through",
        health_generate_headers={},
        lora_ids={},
        limit_mm_data_per_request=[],
    )
    return extension.Server(arguments)


def main() -> None:
    folder, port = sys.argv[1:]
    server = start(load_extension(Path(folder)), int(port))
    print("serving", flush=True)
    sys.stdin.read()
    del server


if __name__ == "__main__":
    main()
