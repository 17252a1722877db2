from ._async import _Function

__all__ = ["run_process"]

run_process: _Function
