"""Capture the operands of a batch norm's backward reduction from a small network in training.

The network learns scikit-learn's 8x8 digits for some steps. At the last step the chosen layer gives up what
``aclnnBatchNormReduceBackward`` works on::

    grad_out   gradient with respect to the layer's output   (N, C, ...)  the dtype of --dtype
    input      the layer's input                             (N, C, ...)  the dtype of --dtype
    mean       mean of each channel over the batch           (C,)         float32
    invstd     1 / sqrt(biased variance + eps)               (C,)         float32
    weight     the layer's weight before the step's update   (C,)         float32

With fp16 and bf16 the network runs in mixed precision (autocast), so the two large arrays were computed in
that dtype, not rounded afterwards; mean and invstd are those of the stored input, computed in float64.
fp16 uses a loss scale, without which small gradients would become zero; grad_out carries that scale. bf16 is
stored as uint16 bit patterns. The file also holds io_dtype and loss_scale.

One seed gives one file, byte for byte, on one machine with one version of torch. Needs the torch extra::

    pip install 'aicore-emulator[torch]'
    python examples/capture_batchnorm.py --net cnn --layer 1 --dtype fp16 --out dump.npz
    aicore run dump.npz
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

try:
    import torch
    from sklearn.datasets import load_digits
    from torch import nn
except ImportError as error:
    sys.exit(f"capture_batchnorm: {error.name} is not installed; pip install 'aicore-emulator[torch]'")

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
IO_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
DEFAULT_LOSS_SCALE = {"fp32": 1.0, "fp16": 1024.0, "bf16": 1.0}
LEARNING_RATE = 0.05
MOMENTUM = 0.9


def build_cnn() -> nn.Sequential:
    """(N, 1, 8, 8) -> conv, BN (N, 16, 8, 8), relu -> conv, BN (N, 32, 4, 4), relu -> mean -> 10 classes."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1, stride=2, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )


def build_mlp() -> nn.Sequential:
    """(N, 64) -> linear, BN (N, 64), relu -> linear, BN (N, 64), relu -> 10 classes."""
    return nn.Sequential(
        nn.Linear(64, 64, bias=False),
        nn.BatchNorm1d(64),
        nn.ReLU(),
        nn.Linear(64, 64, bias=False),
        nn.BatchNorm1d(64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


class Capture:
    """Hooks on one batch-norm layer that keep the input and the output gradient of the latest step."""

    def __init__(self, layer: nn.Module) -> None:
        self.input: torch.Tensor | None = None
        self.grad_out: torch.Tensor | None = None
        layer.register_forward_hook(self._forward)

    def _forward(self, layer: nn.Module, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
        self.input = inputs[0].detach().clone()
        output.register_hook(self._backward)

    def _backward(self, grad: torch.Tensor) -> None:
        self.grad_out = grad.detach().clone()


def batches(count: int, size: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """``count`` batches of digits, (count, size, 64) float32 in [0, 1], and their classes, (count, size)."""
    digits = load_digits()
    if size > len(digits.target):
        sys.exit(f"capture_batchnorm: --batch is {size}; allowed are 2 to {len(digits.target)}, the data there is")
    order = np.random.default_rng(seed)
    rows = np.stack([order.choice(len(digits.target), size, replace=False) for _ in range(count)])
    return torch.from_numpy(digits.data.astype(np.float32) / 16)[rows], torch.from_numpy(digits.target)[rows]


def train(options: argparse.Namespace) -> tuple[dict[str, Any], float]:
    """Train, and give the arrays of the last step and its loss."""
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    dtype = DTYPES[options.dtype]
    net = build_cnn() if options.net == "cnn" else build_mlp()
    norms = [module for module in net if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d)]
    layer = norms[options.layer - 1]
    capture = Capture(layer)
    optimizer = torch.optim.SGD(net.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    images, classes = batches(options.steps, options.batch, options.seed)

    for step, (image, target) in enumerate(zip(images, classes, strict=True), start=1):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32):
            logits = net(image)
        loss = nn.functional.cross_entropy(logits.float(), target)
        (loss * options.loss_scale).backward()
        if step == options.steps:
            break  # the operands belong to the weights before this step's update
        for parameter in net.parameters():
            parameter.grad /= options.loss_scale
        optimizer.step()

    return operands(capture, layer, options), loss.item()


def operands(capture: Capture, layer: Any, options: argparse.Namespace) -> dict[str, Any]:
    """The arrays of the file; stops when a gradient is not finite."""
    assert capture.input is not None and capture.grad_out is not None
    if capture.input.dtype != DTYPES[options.dtype] or capture.grad_out.dtype != DTYPES[options.dtype]:
        sys.exit(f"capture_batchnorm: the layer ran in {capture.input.dtype}, not in {options.dtype}")
    if not torch.isfinite(capture.grad_out).all():
        sys.exit(f"capture_batchnorm: grad_out overflowed; --loss-scale is {options.loss_scale}, make it smaller")
    exact = capture.input.double()
    axes = [axis for axis in range(exact.ndim) if axis != 1]
    mean = exact.mean(axes, keepdim=True)
    variance = (exact - mean).square().mean(axes)  # biased: batch norm normalises with this one
    invstd = 1 / torch.sqrt(variance + layer.eps)
    return {
        "grad_out": to_numpy(capture.grad_out),
        "input": to_numpy(capture.input),
        "mean": mean.flatten().float().numpy(),
        "invstd": invstd.float().numpy(),
        "weight": layer.weight.detach().numpy().copy(),
        "io_dtype": np.array(IO_DTYPES[options.dtype]),
        "loss_scale": np.float32(options.loss_scale),
    }


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """The tensor as a contiguous array; bf16 as its uint16 bit patterns."""
    tensor = tensor.contiguous()
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.view(torch.uint16)
    return tensor.numpy()


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Command-line options, checked."""
    parser = argparse.ArgumentParser(prog="capture_batchnorm", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--net", choices=("cnn", "mlp"), default="cnn")
    parser.add_argument("--layer", type=int, choices=(1, 2), default=1, help="which batch norm, counted from the input")
    parser.add_argument("--dtype", choices=tuple(DTYPES), default="fp32")
    parser.add_argument("--steps", type=int, default=60, help="the operands are those of the last step")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--loss-scale", type=float, help="default: 1024 for fp16, 1 otherwise")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.npz")
    options = parser.parse_args(arguments)
    if options.loss_scale is None:
        options.loss_scale = DEFAULT_LOSS_SCALE[options.dtype]
    if options.steps < 1:
        parser.error(f"--steps is {options.steps}; allowed are 1 and more")
    if options.batch < 2:
        parser.error(f"--batch is {options.batch}; allowed are 2 and more")
    if not 0 < options.loss_scale < float("inf"):
        parser.error(f"--loss-scale is {options.loss_scale}; allowed are positive numbers")
    if options.out.suffix != ".npz":
        parser.error(f"--out is {options.out}; allowed is a name that ends in .npz")
    if not options.out.parent.is_dir():
        parser.error(f"--out is {options.out}; its folder does not exist")
    return options


def main(arguments: list[str] | None = None) -> int:
    """Train, capture, write the file and say what is in it."""
    options = parse(arguments)
    arrays, loss = train(options)
    np.savez_compressed(options.out, **arrays)
    ratio = float(np.max(np.abs(arrays["mean"]) * arrays["invstd"]))
    print(f"{options.out}: {options.out.stat().st_size} bytes")
    print(f"  shape {arrays['input'].shape}, dtype {arrays['io_dtype']}, loss scale {options.loss_scale:g}")
    print(f"  max |mean|/sigma {ratio:.4f}")
    print(f"  loss at step {options.steps}: {loss:.6f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
