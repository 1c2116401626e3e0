/* aclnnBatchNormReduceBackward: the sums of a batch norm's backward pass. */
#ifndef AICORE_ACLNNOP_BATCH_NORM_BACKWARD_REDUCE_H
#define AICORE_ACLNNOP_BATCH_NORM_BACKWARD_REDUCE_H

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* First phase: checks and plans. gradOut and input are (N, C, ...) of rank 2 to 8, all others (C). weight may be
 * NULL; an output may be NULL when its mask (inputG: sumDy and sumDyXmu, weightG: gradWeight, biasG: gradBias) is
 * false. Gives the bytes of workspace and the executor for the second phase. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnBatchNormReduceBackwardGetWorkspaceSize(
    const aclTensor *gradOut, const aclTensor *input, const aclTensor *mean, const aclTensor *invstd,
    const aclTensor *weight, const bool inputG, const bool weightG, const bool biasG, aclTensor *sumDy,
    aclTensor *sumDyXmu, aclTensor *gradWeight, aclTensor *gradBias, uint64_t *workspaceSize,
    aclOpExecutor **executor);

/* Second phase: runs on the stream. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnBatchNormReduceBackward(void *workspace, uint64_t workspaceSize,
                                                             aclOpExecutor *executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif
