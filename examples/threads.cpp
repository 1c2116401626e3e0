// Eight host threads, each with its own context, stream and operands, call the operator at the same time.
//
//     aicore c-run examples/threads.cpp [calls per thread]
//
// Every result is compared with its exact value. Ends with 1 when one is wrong or a call fails.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "acl/acl.h"
#include "aclnnop/aclnn_batch_norm_backward_reduce.h"

namespace {

constexpr int THREADS = 8;
constexpr int64_t N = 6, C = 2;
std::atomic<int> failures{0};

bool Ok(int thread, const char *call, int status)
{
    if (status != ACL_SUCCESS) {
        const char *message = aclGetRecentErrMsg();
        std::fprintf(stderr, "thread %d: %s: status %d: %s\n", thread, call, status, message ? message : "no message");
        failures++;
    }
    return status == ACL_SUCCESS;
}

struct Tensor {
    void *memory = nullptr;
    aclTensor *tensor = nullptr;
};

bool Create(int thread, const std::vector<float> &data, const std::vector<int64_t> &shape, Tensor &out)
{
    const size_t bytes = data.size() * sizeof(float);
    std::vector<int64_t> strides(shape.size(), 1);
    if (shape.size() == 2)
        strides[0] = shape[1];
    if (!Ok(thread, "aclrtMalloc", aclrtMalloc(&out.memory, bytes, ACL_MEM_MALLOC_HUGE_FIRST)) ||
        !Ok(thread, "aclrtMemcpy", aclrtMemcpy(out.memory, bytes, data.data(), bytes, ACL_MEMCPY_HOST_TO_DEVICE)))
        return false;
    out.tensor = aclCreateTensor(shape.data(), shape.size(), ACL_FLOAT, strides.data(), 0, ACL_FORMAT_ND,
                                 shape.data(), shape.size(), out.memory);
    return Ok(thread, "aclCreateTensor", out.tensor ? 0 : -1);
}

bool Call(int thread, int round, aclrtStream stream)
{
    // Integers that differ with the thread and the round: sums are exact.
    std::vector<float> gradOut(N * C), input(N * C), expected(C), got(C);
    for (int64_t i = 0; i < N * C; i++) {
        gradOut[i] = static_cast<float>((i + thread) % 4);
        input[i] = static_cast<float>((i * (thread + 1) + round) % 9);
        expected[i % C] += gradOut[i] * (input[i] - 1);
    }
    Tensor tensors[8];
    const std::vector<int64_t> full = {N, C}, channels = {C};
    const std::vector<float> ones(C, 1.0f);
    bool ok = Create(thread, gradOut, full, tensors[0]) && Create(thread, input, full, tensors[1]);
    for (int i = 2; ok && i < 8; i++)
        ok = Create(thread, ones, channels, tensors[i]);
    uint64_t bytes = 0;
    aclOpExecutor *executor = nullptr;
    void *workspace = nullptr;
    ok = ok && Ok(thread, "GetWorkspaceSize",
                  aclnnBatchNormReduceBackwardGetWorkspaceSize(
                      tensors[0].tensor, tensors[1].tensor, tensors[2].tensor, tensors[3].tensor, nullptr, true, true,
                      true, tensors[4].tensor, tensors[5].tensor, tensors[6].tensor, tensors[7].tensor, &bytes,
                      &executor));
    if (ok && bytes > 0)
        ok = Ok(thread, "aclrtMalloc", aclrtMalloc(&workspace, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    ok = ok && Ok(thread, "aclnnBatchNormReduceBackward",
                  aclnnBatchNormReduceBackward(workspace, bytes, executor, stream)) &&
         Ok(thread, "aclrtSynchronizeStream", aclrtSynchronizeStream(stream)) &&
         Ok(thread, "aclrtMemcpy", aclrtMemcpy(got.data(), C * sizeof(float), tensors[5].memory, C * sizeof(float),
                                               ACL_MEMCPY_DEVICE_TO_HOST));
    for (int64_t c = 0; ok && c < C; c++)
        if (got[c] != expected[c]) {
            std::fprintf(stderr, "thread %d, call %d: sumDyXmu[%d]: got %g; expected %g\n", thread, round,
                         static_cast<int>(c), got[c], expected[c]);
            failures++;
        }
    for (const Tensor &tensor : tensors) {
        if (tensor.tensor)
            Ok(thread, "aclDestroyTensor", aclDestroyTensor(tensor.tensor));
        if (tensor.memory)
            Ok(thread, "aclrtFree", aclrtFree(tensor.memory));
    }
    if (workspace)
        Ok(thread, "aclrtFree", aclrtFree(workspace));
    return ok;
}

void Work(int thread, int calls)
{
    aclrtContext context = nullptr;
    aclrtStream stream = nullptr;
    if (!Ok(thread, "aclrtCreateContext", aclrtCreateContext(&context, 0)) ||
        !Ok(thread, "aclrtCreateStream", aclrtCreateStream(&stream)))
        return;
    for (int round = 0; round < calls; round++)
        if (!Call(thread, round, stream))
            break;
    Ok(thread, "aclrtDestroyStream", aclrtDestroyStream(stream));
    Ok(thread, "aclrtDestroyContext", aclrtDestroyContext(context));
}

} // namespace

int main(int argc, char **argv)
{
    const int calls = argc > 1 ? std::atoi(argv[1]) : 20;
    if (!Ok(-1, "aclInit", aclInit(nullptr)) || !Ok(-1, "aclrtSetDevice", aclrtSetDevice(0)))
        return 1;
    std::vector<std::thread> threads;
    for (int thread = 0; thread < THREADS; thread++)
        threads.emplace_back(Work, thread, calls);
    for (std::thread &thread : threads)
        thread.join();
    Ok(-1, "aclrtResetDevice", aclrtResetDevice(0));
    Ok(-1, "aclFinalize", aclFinalize());
    std::printf("%d threads, %d calls each, %d failures\n", THREADS, calls, failures.load());
    return failures ? 1 : 0;
}
