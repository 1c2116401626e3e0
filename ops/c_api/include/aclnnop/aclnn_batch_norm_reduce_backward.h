/* The operator's header under its other name. */
#ifndef AICORE_ACLNNOP_BATCH_NORM_REDUCE_BACKWARD_H
#define AICORE_ACLNNOP_BATCH_NORM_REDUCE_BACKWARD_H

#include "aclnnop/aclnn_batch_norm_backward_reduce.h"

#endif
