// aclnnBatchNormReduceBackward from C++: fp16 inputs, one of them a transposed view, one output masked off.
//
//     aicore c-run examples/batch_norm_reduce_backward_fp16.cpp
//
// input is stored channels-last, (N, H, W, C), and viewed as (N, C, H, W) through its strides. All values are small
// integers and halves, so that every sum is exact and the results can be compared bit for bit. Ends with 1 when one
// of them is wrong. batch_norm_reduce_backward_fp16.py is the same in Python.
#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

#include "acl/acl.h"
#include "aclnnop/aclnn_batch_norm_reduce_backward.h"

namespace {

constexpr int64_t N = 2, C = 3, H = 4, W = 5;
constexpr int64_t ELEMENTS = N * C * H * W;

int Failed(const char *call, int status)
{
    const char *message = aclGetRecentErrMsg();
    std::fprintf(stderr, "%s: status %d: %s\n", call, status, message ? message : "no message");
    return 1;
}

#define TRY(call)                        \
    do {                                 \
        int status = (call);             \
        if (status != ACL_SUCCESS)       \
            return Failed(#call, status); \
    } while (0)

// Device memory with a tensor that describes it.
struct DeviceTensor {
    void *memory = nullptr;
    aclTensor *tensor = nullptr;

    int Create(const void *data, size_t bytes, aclDataType type, const std::vector<int64_t> &shape,
               const std::vector<int64_t> &strides, const std::vector<int64_t> &storage)
    {
        TRY(aclrtMalloc(&memory, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
        TRY(aclrtMemcpy(memory, bytes, data, bytes, ACL_MEMCPY_HOST_TO_DEVICE));
        tensor = aclCreateTensor(shape.data(), shape.size(), type, strides.data(), 0, ACL_FORMAT_ND, storage.data(),
                                 storage.size(), memory);
        return tensor ? 0 : Failed("aclCreateTensor", 0);
    }

    int Destroy()
    {
        TRY(aclDestroyTensor(tensor));
        TRY(aclrtFree(memory));
        return 0;
    }
};

std::vector<aclFloat16> Halves(const std::vector<float> &values)
{
    std::vector<aclFloat16> halves;
    for (float value : values)
        halves.push_back(aclFloatToFloat16(value));
    return halves;
}

int Compare(const char *name, const float *got, const std::vector<float> &expected)
{
    int wrong = 0;
    for (size_t i = 0; i < expected.size(); i++) {
        std::printf("%s[%zu] is: %g\n", name, i, got[i]);
        if (got[i] != expected[i]) {
            std::fprintf(stderr, "%s[%zu]: got %g; expected %g\n", name, i, got[i], expected[i]);
            wrong = 1;
        }
    }
    return wrong;
}

} // namespace

int main()
{
    // Operands, and what the operator must give for them.
    std::vector<float> gradOut(ELEMENTS), input(ELEMENTS); // gradOut as N C H W, input as N H W C
    std::vector<float> mean = {1, -1, 2}, invstd = {0.5f, 2, 1};
    std::vector<float> sumDy(C), sumDyXmu(C);
    for (int64_t n = 0; n < N; n++)
        for (int64_t c = 0; c < C; c++)
            for (int64_t h = 0; h < H; h++)
                for (int64_t w = 0; w < W; w++) {
                    float g = static_cast<float>((n + 2 * c + 3 * h + w) % 5 - 1);
                    float x = static_cast<float>((3 * n + c + h * w) % 7 - 3) / 2;
                    gradOut[((n * C + c) * H + h) * W + w] = g;
                    input[((n * H + h) * W + w) * C + c] = x;
                    sumDy[c] += g;
                    sumDyXmu[c] += g * (x - mean[c]);
                }

    // 1. Start.
    aclrtStream stream = nullptr;
    TRY(aclInit(nullptr));
    TRY(aclrtSetDevice(0));
    TRY(aclrtCreateStream(&stream));

    // 2. Tensors. sumDy and gradBias are fp16, sumDyXmu is fp32: each output has a type of its own.
    const std::vector<int64_t> full = {N, C, H, W}, contiguous = {C * H * W, H * W, W, 1};
    const std::vector<int64_t> transposed = {H * W * C, 1, W * C, C}, channelsLast = {N, H, W, C};
    const std::vector<int64_t> channels = {C}, one = {1};
    DeviceTensor tGradOut, tInput, tMean, tInvstd, tSumDy, tSumDyXmu, tGradBias;
    const auto halfGradOut = Halves(gradOut), halfInput = Halves(input);
    const std::vector<aclFloat16> halfZeros(C);
    const std::vector<float> zeros(C);
    const size_t fullBytes = ELEMENTS * sizeof(aclFloat16);
    if (tGradOut.Create(halfGradOut.data(), fullBytes, ACL_FLOAT16, full, contiguous, full) ||
        tInput.Create(halfInput.data(), fullBytes, ACL_FLOAT16, full, transposed, channelsLast) ||
        tMean.Create(mean.data(), C * sizeof(float), ACL_FLOAT, channels, one, channels) ||
        tInvstd.Create(invstd.data(), C * sizeof(float), ACL_FLOAT, channels, one, channels) ||
        tSumDy.Create(halfZeros.data(), C * sizeof(aclFloat16), ACL_FLOAT16, channels, one, channels) ||
        tSumDyXmu.Create(zeros.data(), C * sizeof(float), ACL_FLOAT, channels, one, channels) ||
        tGradBias.Create(halfZeros.data(), C * sizeof(aclFloat16), ACL_FLOAT16, channels, one, channels))
        return 1;

    // 3. Both phases. weight may be null; so may gradWeight, because weightG is false.
    uint64_t workspaceBytes = 0;
    aclOpExecutor *executor = nullptr;
    void *workspace = nullptr;
    TRY(aclnnBatchNormReduceBackwardGetWorkspaceSize(tGradOut.tensor, tInput.tensor, tMean.tensor, tInvstd.tensor,
                                                     nullptr, true, false, true, tSumDy.tensor, tSumDyXmu.tensor,
                                                     nullptr, tGradBias.tensor, &workspaceBytes, &executor));
    if (workspaceBytes > 0)
        TRY(aclrtMalloc(&workspace, workspaceBytes, ACL_MEM_MALLOC_HUGE_FIRST));
    TRY(aclnnBatchNormReduceBackward(workspace, workspaceBytes, executor, stream));
    TRY(aclrtSynchronizeStream(stream));

    // 4. Results.
    std::vector<aclFloat16> half(C);
    std::vector<float> got(C);
    int wrong = 0;
    const std::vector<std::pair<const char *, const DeviceTensor *>> halfOutputs = {{"sumDy", &tSumDy},
                                                                                    {"gradBias", &tGradBias}};
    for (const auto &output : halfOutputs) {
        TRY(aclrtMemcpy(half.data(), C * sizeof(aclFloat16), output.second->memory, C * sizeof(aclFloat16),
                        ACL_MEMCPY_DEVICE_TO_HOST));
        for (int64_t c = 0; c < C; c++)
            got[c] = aclFloat16ToFloat(half[c]);
        wrong |= Compare(output.first, got.data(), sumDy);
    }
    TRY(aclrtMemcpy(got.data(), C * sizeof(float), tSumDyXmu.memory, C * sizeof(float), ACL_MEMCPY_DEVICE_TO_HOST));
    wrong |= Compare("sumDyXmu", got.data(), sumDyXmu);

    // 5. Stop.
    for (DeviceTensor *tensor : {&tGradOut, &tInput, &tMean, &tInvstd, &tSumDy, &tSumDyXmu, &tGradBias})
        if (tensor->Destroy())
            return 1;
    if (workspace)
        TRY(aclrtFree(workspace));
    TRY(aclrtDestroyStream(stream));
    TRY(aclrtResetDevice(0));
    TRY(aclFinalize());
    std::printf(wrong ? "WRONG\n" : "all results are right\n");
    return wrong;
}
