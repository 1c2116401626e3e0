"""The machine: products, number formats, memories, instructions, launches and events of an Ascend AI core."""

from emulator import products
from emulator.errors import EmulatorError, ProductError
from emulator.faults import HangError, KernelFault
from emulator.jit import aicore
from emulator.launch import Kernel, Run, kernel, launch
from emulator.memory import GlobalMemory
from emulator.products import Product
from emulator.schedule import VENDOR, Schedule, exhaustive

__all__ = [
    "VENDOR",
    "EmulatorError",
    "GlobalMemory",
    "HangError",
    "Kernel",
    "KernelFault",
    "Product",
    "ProductError",
    "Run",
    "Schedule",
    "aicore",
    "exhaustive",
    "kernel",
    "launch",
    "products",
]
