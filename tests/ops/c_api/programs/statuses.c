/* What a C program sees of errors: a status and a message, never a crash. C11. Prints every mismatch. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "acl/acl.h"
#include "aclnnop/aclnn_batch_norm_backward_reduce.h"

static int wrong = 0;

static void expect(const char *what, int got, int expected, const char *part)
{
    const char *message = aclGetRecentErrMsg();

    if (got != expected) {
        printf("%s: status %d; expected %d (%s)\n", what, got, expected, message ? message : "no message");
        wrong++;
    } else if (part && (message == NULL || strstr(message, part) == NULL)) {
        printf("%s: message %s; expected one with %s\n", what, message ? message : "missing", part);
        wrong++;
    }
}

static aclTensor *tensor(int64_t rank, const int64_t *shape, aclDataType type, void *memory)
{
    return aclCreateTensor(shape, (uint64_t)rank, type, NULL, 0, ACL_FORMAT_ND, shape, (uint64_t)rank, memory);
}

int main(void)
{
    const int64_t full[2] = {4, 2}, channels[1] = {2}, absurd[2] = {INT64_MAX, INT64_MAX};
    int64_t *dims = NULL;
    uint64_t count = 0, workspaceSize = 0;
    void *memory = NULL, *second = NULL;
    aclrtStream stream = NULL;
    aclOpExecutor *executor = NULL;
    aclTensor *x, *v, *odd;
    int8_t *bytes;

    if (aclGetRecentErrMsg() != NULL)
        wrong++;
    expect("malloc before aclInit", aclrtMalloc(&memory, 64, ACL_MEM_MALLOC_HUGE_FIRST), ACL_ERROR_UNINITIALIZE,
           "aclrtMalloc");
    expect("aclInit", aclInit(NULL), ACL_SUCCESS, NULL);
    expect("aclInit again", aclInit(NULL), ACL_ERROR_REPEAT_INITIALIZE, "aclInit");
    expect("malloc without device", aclrtMalloc(&memory, 64, ACL_MEM_MALLOC_HUGE_FIRST), ACL_ERROR_RT_CONTEXT_NULL,
           "aclrtMalloc");
    expect("device -1", aclrtSetDevice(-1), ACL_ERROR_RT_INVALID_DEVICEID, "-1");
    expect("aclrtSetDevice", aclrtSetDevice(0), ACL_SUCCESS, NULL);
    expect("aclrtCreateStream", aclrtCreateStream(&stream), ACL_SUCCESS, NULL);
    expect("null out-parameter", aclrtCreateStream(NULL), ACL_ERROR_INVALID_PARAM, "stream");
    expect("malloc of nothing", aclrtMalloc(&memory, 0, ACL_MEM_MALLOC_HUGE_FIRST), ACL_ERROR_INVALID_PARAM, "size");
    expect("malloc of everything", aclrtMalloc(&memory, SIZE_MAX, ACL_MEM_MALLOC_HUGE_FIRST),
           ACL_ERROR_RT_MEMORY_ALLOCATION, "size");
    expect("aclrtMalloc", aclrtMalloc(&memory, 32, ACL_MEM_MALLOC_HUGE_FIRST), ACL_SUCCESS, NULL);
    expect("memset", aclrtMemset(memory, 32, 0, 32), ACL_SUCCESS, NULL);
    bytes = memory;
    if (bytes[0] || bytes[31])
        wrong++;
    expect("memcpy of too much", aclrtMemcpy(memory, 32, full, 33, ACL_MEMCPY_HOST_TO_DEVICE),
           ACL_ERROR_RT_PARAM_INVALID, "count");
    expect("memcpy from nowhere", aclrtMemcpy(memory, 32, (void *)16, 8, ACL_MEMCPY_HOST_TO_DEVICE),
           ACL_ERROR_RT_PARAM_INVALID, "src");
    expect("unknown kind", aclrtMemcpy(memory, 32, full, 8, (aclrtMemcpyKind)99), ACL_ERROR_INVALID_PARAM, "kind");
    expect("free of null", aclrtFree(NULL), ACL_ERROR_INVALID_PARAM, "devPtr");
    expect("free of a foreign pointer", aclrtFree(&dims), ACL_ERROR_RT_PARAM_INVALID, "devPtr");
    expect("aclrtMalloc", aclrtMalloc(&second, 8, ACL_MEM_MALLOC_NORMAL_ONLY), ACL_SUCCESS, NULL);
    expect("aclrtFree", aclrtFree(second), ACL_SUCCESS, NULL);
    expect("aclrtFree twice", aclrtFree(second), ACL_ERROR_RT_PARAM_INVALID, "devPtr");

    x = tensor(2, full, ACL_FLOAT, memory);
    v = tensor(1, channels, ACL_FLOAT, memory);
    odd = tensor(1, channels, ACL_INT32, memory);
    if (!x || !v || !odd)
        return 2;
    if (aclCreateTensor(full, UINT64_MAX, ACL_FLOAT, NULL, 0, ACL_FORMAT_ND, full, 2, memory) != NULL)
        wrong++;
    expect("dimensions without end", 0, 0, "viewDimsNum");
    tensor(2, absurd, ACL_FLOAT, memory); /* whatever it says, it says it without a crash */

    expect("aclGetViewShape", aclGetViewShape(x, &dims, &count), ACL_SUCCESS, NULL);
    if (count != 2 || dims[0] != 4 || dims[1] != 2)
        wrong++;
    free(dims);
    expect("aclGetViewShape of null", aclGetViewShape(NULL, &dims, &count), ACLNN_ERR_PARAM_NULLPTR, "tensor");
    expect("aclGetViewShape to null", aclGetViewShape(x, NULL, &count), ACLNN_ERR_PARAM_NULLPTR, "viewDims");

#define FIRST(g, in, m, size, exec)                                                                                  \
    aclnnBatchNormReduceBackwardGetWorkspaceSize(g, in, m, v, NULL, true, true, true, v, v, v, v, size, exec)
    expect("null input", FIRST(x, NULL, v, &workspaceSize, &executor), ACLNN_ERR_PARAM_NULLPTR, "input");
    expect("null workspaceSize", FIRST(x, x, v, NULL, &executor), ACLNN_ERR_PARAM_NULLPTR, "workspaceSize");
    expect("null executor", FIRST(x, x, v, &workspaceSize, NULL), ACLNN_ERR_PARAM_NULLPTR, "executor");
    expect("int32 mean", FIRST(x, x, odd, &workspaceSize, &executor), ACLNN_ERR_PARAM_INVALID, "mean");
    expect("rank 1", FIRST(v, v, v, &workspaceSize, &executor), ACLNN_ERR_PARAM_INVALID, "gradOut");
    expect("no tensor", FIRST((aclTensor *)&dims, x, v, &workspaceSize, &executor), ACLNN_ERR_PARAM_INVALID, "gradOut");
    expect("second phase without an executor", aclnnBatchNormReduceBackward(NULL, 0, NULL, stream) != 0, 1, "executor");

    expect("aclDestroyTensor", aclDestroyTensor(x) | aclDestroyTensor(v) | aclDestroyTensor(odd), ACL_SUCCESS, NULL);
    expect("aclrtFree", aclrtFree(memory), ACL_SUCCESS, NULL);
    expect("aclrtDestroyStream", aclrtDestroyStream(stream), ACL_SUCCESS, NULL);
    expect("aclrtDestroyStream twice", aclrtDestroyStream(stream) != 0, 1, "stream");
    expect("aclrtResetDevice", aclrtResetDevice(0), ACL_SUCCESS, NULL);
    expect("aclFinalize", aclFinalize(), ACL_SUCCESS, NULL);
    printf("%d wrong\n", wrong);
    return wrong != 0;
}
