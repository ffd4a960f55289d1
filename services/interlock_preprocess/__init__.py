"""The Preprocess service: pictures in, bf16 patches out. `add_preprocess` puts it on a server."""

from interlock_preprocess.serve import PreprocessService, add_preprocess
from interlock_preprocess.settings import PreprocessSettings

__all__ = ["PreprocessService", "PreprocessSettings", "add_preprocess"]
