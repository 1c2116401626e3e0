"""aclnnBatchNormReduceBackward from Python: fp16 inputs, one of them a transposed view, one output masked off.

    python examples/batch_norm_reduce_backward_fp16.py

input is stored channels-last, (N, H, W, C), and viewed as (N, C, H, W) through its strides. All values are small
integers and halves, so that every sum is exact and the results can be compared bit for bit. Ends with 1 when one
of them is wrong. batch_norm_reduce_backward_fp16.cpp is the same in C++.
"""

import sys

import numpy as np

from ops import acl, aclnn

N, C, H, W = 2, 3, 4, 5


def check(call: str, status: int) -> None:
    """End with the message when a call failed."""
    if status != acl.AclError.ACL_SUCCESS:
        sys.exit(f"{call}: status {int(status)}: {acl.get_recent_err_msg()}")


def compare(name: str, got: np.ndarray, expected: np.ndarray) -> bool:
    for i, value in enumerate(got):
        print(f"{name}[{i}] is: {float(value):g}")
    if np.array_equal(got.astype(np.float64), expected):
        return True
    print(f"{name}: got {got}; expected {expected}", file=sys.stderr)
    return False


def main() -> int:
    # Operands, and what the operator must give for them.
    n, c, h, w = np.ogrid[:N, :C, :H, :W]
    grad_out = ((n + 2 * c + 3 * h + w) % 5 - 1).astype(np.float64)
    input = ((3 * n + c + h * w) % 7 - 3) / 2
    mean, invstd = np.array([1.0, -1.0, 2.0]), np.array([0.5, 2.0, 1.0])
    sum_dy = grad_out.sum((0, 2, 3))
    sum_dy_xmu = (grad_out * (input - mean.reshape(1, C, 1, 1))).sum((0, 2, 3))

    # 1. A device; AICORE_PRODUCT names the product.
    with acl.Device():
        status, stream = acl.aclrtCreateStream()
        check("aclrtCreateStream", status)

        # 2. Tensors. sumDy and gradBias are fp16, sumDyXmu is fp32: each output has a type of its own.
        t_grad_out = acl.create_tensor((N, C, H, W), "float16", data=grad_out)
        t_input = acl.create_tensor(
            (N, C, H, W), "float16", strides=(H * W * C, 1, W * C, C), data=input.transpose(0, 2, 3, 1)
        )
        t_mean = acl.create_tensor((C,), "float32", data=mean)
        t_invstd = acl.create_tensor((C,), "float32", data=invstd)
        t_sum_dy = acl.create_tensor((C,), "float16")
        t_sum_dy_xmu = acl.create_tensor((C,), "float32")
        t_grad_bias = acl.create_tensor((C,), "float16")

        # 3. Both phases. weight may be None; so may gradWeight, because weightG is False.
        status, workspace_bytes, executor = aclnn.aclnnBatchNormReduceBackwardGetWorkspaceSize(
            t_grad_out, t_input, t_mean, t_invstd, None, True, False, True,
            t_sum_dy, t_sum_dy_xmu, None, t_grad_bias,
        )  # fmt: skip
        check("aclnnBatchNormReduceBackwardGetWorkspaceSize", status)
        status, workspace = acl.aclrtMalloc(workspace_bytes)
        check("aclrtMalloc", status)
        check(
            "aclnnBatchNormReduceBackward",
            aclnn.aclnnBatchNormReduceBackward(workspace, workspace_bytes, executor, stream),
        )
        check("aclrtSynchronizeStream", acl.aclrtSynchronizeStream(stream))

        # 4. Results.
        right = [
            compare("sumDy", t_sum_dy.to_host(), sum_dy),
            compare("gradBias", t_grad_bias.to_host(), sum_dy),
            compare("sumDyXmu", t_sum_dy_xmu.to_host(), sum_dy_xmu),
        ]
        check("aclrtFree", acl.aclrtFree(workspace))
        check("aclrtDestroyStream", acl.aclrtDestroyStream(stream))
    print("all results are right" if all(right) else "WRONG")
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
