// Calls both phases many times and says how much memory the process holds after a fifth of them and at the end.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>
#include <vector>

#include "acl/acl.h"
#include "aclnnop/aclnn_batch_norm_backward_reduce.h"

static long ResidentKib()
{
    long pages = 0, resident = 0;
    FILE *file = std::fopen("/proc/self/statm", "r");
    if (!file || std::fscanf(file, "%ld %ld", &pages, &resident) != 2)
        return -1;
    std::fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static int Call(aclrtStream stream)
{
    const int64_t full[3] = {2, 3, 1024}, channels[1] = {3};
    void *memory[8] = {};
    aclTensor *tensors[8] = {};
    for (int i = 0; i < 8; i++) {
        const int64_t *shape = i < 2 ? full : channels;
        const uint64_t rank = i < 2 ? 3 : 1;
        const size_t bytes = (i < 2 ? 2 * 3 * 1024 : 3) * sizeof(float);
        if (aclrtMalloc(&memory[i], bytes, ACL_MEM_MALLOC_HUGE_FIRST) || aclrtMemset(memory[i], bytes, 0, bytes))
            return 1;
        tensors[i] = aclCreateTensor(shape, rank, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, shape, rank, memory[i]);
        if (!tensors[i])
            return 2;
    }
    uint64_t bytes = 0;
    aclOpExecutor *executor = nullptr;
    void *workspace = nullptr;
    if (aclnnBatchNormReduceBackwardGetWorkspaceSize(tensors[0], tensors[1], tensors[2], tensors[3], nullptr, true,
                                                     true, true, tensors[4], tensors[5], tensors[6], tensors[7], &bytes,
                                                     &executor))
        return 3;
    if (bytes && aclrtMalloc(&workspace, bytes, ACL_MEM_MALLOC_HUGE_FIRST))
        return 4;
    if (aclnnBatchNormReduceBackward(workspace, bytes, executor, stream) || aclrtSynchronizeStream(stream))
        return 5;
    for (int i = 0; i < 8; i++)
        if (aclDestroyTensor(tensors[i]) || aclrtFree(memory[i]))
            return 6;
    return workspace && aclrtFree(workspace) ? 7 : 0;
}

int main(int argc, char **argv)
{
    const int calls = argc > 1 ? std::atoi(argv[1]) : 10000;
    aclrtStream stream = nullptr;
    if (aclInit(nullptr) || aclrtSetDevice(0) || aclrtCreateStream(&stream))
        return 1;
    long warm = 0;
    for (int i = 0; i < calls; i++) {
        if (int failed = Call(stream)) {
            const char *message = aclGetRecentErrMsg();
            std::fprintf(stderr, "call %d failed at %d: %s\n", i, failed, message ? message : "no message");
            return 1;
        }
        if (i == calls / 5)
            warm = ResidentKib();
    }
    std::printf("%ld %ld\n", warm, ResidentKib());
    return aclrtDestroyStream(stream) || aclrtResetDevice(0) || aclFinalize();
}
