"""What a model runs on: its name, and the most memory that a stretch of work needed."""

import gc
import platform
import re
from pathlib import Path

from prunebench.errors import ResourceError


def processor_name() -> str:
    """The processor as Linux prints it, or the machine's architecture."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        found = re.search(r"^model name\s*:(.*)$", cpuinfo.read_text(), re.MULTILINE)
        if found:
            return found[1].strip()
    return platform.processor() or platform.machine()


def hardware_name(device: str) -> str:
    """The processor, or the GPU as torch names it.

    Raises:
        ResourceError: no such device.
    """
    if device == "cpu":
        return processor_name()
    import torch

    if not torch.cuda.is_available():
        raise ResourceError(f"device '{device}' was asked for, but this machine has no usable NVIDIA GPU")
    return torch.cuda.get_device_name(device)


class Meter:
    """Waits for a device, and tells how far its memory rose above a baseline.

    On a GPU that is what torch allocated. On the CPU it is the process's resident memory, which also holds
    what the allocator keeps for later: a rough figure.
    """

    def __init__(self, device: str) -> None:
        """Nothing is measured before `take_baseline`."""
        self._device = None if device == "cpu" else device
        self._baseline: int | None = 0

    def settle(self) -> None:
        """Wait until the device has done what it was given."""
        if self._device is not None:
            import torch

            torch.cuda.synchronize(self._device)

    def take_baseline(self) -> None:
        """Remember the memory in use now, free of what nobody refers to."""
        gc.collect()
        self._baseline = self._read("VmRSS")

    def reset_peak(self) -> None:
        """Forget peaks before now."""
        if self._device is not None:
            import torch

            torch.cuda.reset_peak_memory_stats(self._device)
            return
        try:
            Path("/proc/self/clear_refs").write_text("5")
        except OSError:
            self._baseline = None

    def growth(self) -> int | None:
        """Bytes from the baseline to the peak; None where the kernel does not let a process reset peaks."""
        return None if self._baseline is None else max(0, self._read("VmHWM") - self._baseline)

    def _read(self, field: str) -> int:
        if self._device is not None:
            import torch

            peak = field == "VmHWM"
            read = torch.cuda.max_memory_allocated if peak else torch.cuda.memory_allocated
            return read(self._device)
        status = Path("/proc/self/status")
        # Not getrusage, whose peak a process takes over from the one that started it.
        lines = status.read_text().splitlines() if status.is_file() else []
        return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:")), 0)
