"""The Preprocess service: pictures in, bf16 patches out. `add_preprocess` puts it on a server."""

from typing import TYPE_CHECKING, Any

from interlock_preprocess.settings import PreprocessSettings

if TYPE_CHECKING:
    from interlock_preprocess.serve import PreprocessService, add_preprocess

__all__ = ["PreprocessService", "PreprocessSettings", "add_preprocess"]


def __getattr__(name: str) -> Any:
    """The service itself is imported when it is asked for: the settings are known without its packages too."""
    if name in __all__:
        from interlock_preprocess import serve

        return getattr(serve, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
