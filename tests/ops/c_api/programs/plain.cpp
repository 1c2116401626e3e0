// The shortest whole program: contiguous fp32, every output, (4, 2).
#include <cstdio>
#include <vector>

#include "acl/acl.h"
#include "aclnnop/aclnn_batch_norm_backward_reduce.h"

struct Operand {
    std::vector<float> host;
    std::vector<int64_t> shape;
    void *device;
    aclTensor *tensor;
};

int main()
{
    auto ret = ACL_SUCCESS; // an int, as every status
    int32_t device = 0;
    aclrtStream stream;
    if ((ret = aclInit(nullptr)) || (ret = aclrtSetDevice(device)) || (ret = aclrtCreateStream(&stream)))
        return 1;
    std::vector<Operand> operands = {
        {{1, 1, 1, 2, 2, 2, 3, 3}, {4, 2}, nullptr, nullptr}, {{0, 1, 2, 3, 4, 5, 6, 7}, {4, 2}, nullptr, nullptr},
    };
    for (float value : {1.f, 1.f, 1.f, 9.f, 9.f, 9.f, 9.f}) // mean, invstd, weight, and the outputs
        operands.push_back({{value, value}, {2}, nullptr, nullptr});
    for (Operand &o : operands) {
        size_t bytes = o.host.size() * sizeof(float);
        ret = aclrtMalloc(&o.device, bytes, ACL_MEM_MALLOC_HUGE_FIRST);
        if (ret != ACL_SUCCESS)
            return 2;
        ret = aclrtMemcpy(o.device, bytes, o.host.data(), bytes, ACL_MEMCPY_HOST_TO_DEVICE);
        if (ret != ACL_SUCCESS)
            return 3;
        std::vector<int64_t> strides(o.shape.size(), 1);
        for (int64_t i = static_cast<int64_t>(o.shape.size()) - 2; i >= 0; i--)
            strides[i] = o.shape[i + 1] * strides[i + 1];
        o.tensor = aclCreateTensor(o.shape.data(), o.shape.size(), aclDataType::ACL_FLOAT, strides.data(), 0,
                                   aclFormat::ACL_FORMAT_ND, o.shape.data(), o.shape.size(), o.device);
        if (o.tensor == nullptr)
            return 4;
    }
    uint64_t workspaceSize = 0;
    aclOpExecutor *executor;
    ret = aclnnBatchNormReduceBackwardGetWorkspaceSize(
        operands[0].tensor, operands[1].tensor, operands[2].tensor, operands[3].tensor, operands[4].tensor, true, true,
        true, operands[5].tensor, operands[6].tensor, operands[7].tensor, operands[8].tensor, &workspaceSize,
        &executor);
    if (ret != ACL_SUCCESS)
        return 5;
    void *workspace = nullptr;
    if (workspaceSize > 0 && aclrtMalloc(&workspace, workspaceSize, ACL_MEM_MALLOC_HUGE_FIRST) != ACL_SUCCESS)
        return 6;
    ret = aclnnBatchNormReduceBackward(workspace, workspaceSize, executor, stream);
    if (ret != ACL_SUCCESS || aclrtSynchronizeStream(stream) != ACL_SUCCESS)
        return 7;
    for (size_t k = 5; k < operands.size(); k++) {
        std::vector<float> result(2);
        ret = aclrtMemcpy(result.data(), 8, operands[k].device, 8, ACL_MEMCPY_DEVICE_TO_HOST);
        if (ret != ACL_SUCCESS)
            return 8;
        const float *same = static_cast<const float *>(operands[k].device); // device memory is host memory here
        for (int i = 0; i < 2; i++) {
            if (same[i] != result[i])
                return 9;
            std::printf("result[%d] is: %f\n", i, result[i]);
        }
    }
    for (Operand &o : operands)
        if (aclDestroyTensor(o.tensor) != 0 || aclrtFree(o.device) != ACL_SUCCESS)
            return 10;
    if (workspace && aclrtFree(workspace) != ACL_SUCCESS)
        return 11;
    if (aclrtDestroyStream(stream) || aclrtResetDevice(device) || aclFinalize())
        return 12;
    return 0;
}
