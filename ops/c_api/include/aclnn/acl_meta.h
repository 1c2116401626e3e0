/* Tensors and executors of the two-phase operator interface. */
#ifndef AICORE_ACLNN_ACL_META_H
#define AICORE_ACLNN_ACL_META_H

#include "acl/acl_base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct aclOpExecutor aclOpExecutor;
typedef struct aclTensor aclTensor;

typedef int32_t aclnnStatus;

ACL_STATUS(OK, 0);
ACL_STATUS(ACLNN_SUCCESS, 0);
ACL_STATUS(ACLNN_ERR_PARAM_NULLPTR, 161001);
ACL_STATUS(ACLNN_ERR_PARAM_INVALID, 161002);
ACL_STATUS(ACLNN_ERR_RUNTIME_ERROR, 361001);
ACL_STATUS(ACLNN_ERR_INNER, 561000);
ACL_STATUS(ACLNN_ERR_INNER_INFERSHAPE_ERROR, 561001);
ACL_STATUS(ACLNN_ERR_INNER_TILING_ERROR, 561002);
ACL_STATUS(ACLNN_ERR_INNER_FIND_KERNEL_ERROR, 561003);
ACL_STATUS(ACLNN_ERR_INNER_CREATE_EXECUTOR, 561101);
ACL_STATUS(ACLNN_ERR_INNER_NOT_TRANS_EXECUTOR, 561102);
ACL_STATUS(ACLNN_ERR_INNER_NULLPTR, 561103);
ACL_STATUS(ACLNN_ERR_INNER_WRONG_ATTR_INFO_SIZE, 561104);
ACL_STATUS(ACLNN_ERR_INNER_KEY_CONFLICT, 561105);
ACL_STATUS(ACLNN_ERR_INNER_INVALID_IMPL_MODE, 561106);
ACL_STATUS(ACLNN_ERR_INNER_OPP_PATH_NOT_FOUND, 561107);
ACL_STATUS(ACLNN_ERR_INNER_LOAD_JSON_FAILED, 561108);
ACL_STATUS(ACLNN_ERR_INNER_JSON_VALUE_NOT_FOUND, 561109);
ACL_STATUS(ACLNN_ERR_INNER_JSON_FORMAT_INVALID, 561110);
ACL_STATUS(ACLNN_ERR_INNER_JSON_DTYPE_INVALID, 561111);
ACL_STATUS(ACLNN_ERR_INNER_OPP_KERNEL_PKG_NOT_FOUND, 561112);
ACL_STATUS(ACLNN_ERR_INNER_OP_FILE_INVALID, 561113);
ACL_STATUS(ACLNN_ERR_INNER_ATTR_NUM_OUT_OF_BOUND, 561114);
ACL_STATUS(ACLNN_ERR_INNER_ATTR_LEN_NOT_ENOUGH, 561115);
ACL_STATUS(ACLNN_ERR_INNER_INPUT_NUM_IN_JSON_TOO_LARGE, 561116);
ACL_STATUS(ACLNN_ERR_INNER_INPUT_JSON_IS_NULL, 561117);
ACL_STATUS(ACLNN_ERR_INNER_STATIC_WORKSPACE_INVALID, 561118);
ACL_STATUS(ACLNN_ERR_INNER_STATIC_BLOCK_DIM_INVALID, 561119);

/* Describes a view (viewDims, stride and offset in elements) of storage at tensorData; copies the arrays, not the
 * data. stride may be NULL for a contiguous view. NULL when it fails. */
ACL_FUNC_VISIBILITY aclTensor *aclCreateTensor(const int64_t *viewDims, uint64_t viewDimsNum, aclDataType dataType,
                                               const int64_t *stride, int64_t offset, aclFormat format,
                                               const int64_t *storageDims, uint64_t storageDimsNum,
                                               void *tensorData);
/* Describes an existing tensor anew. */
ACL_FUNC_VISIBILITY aclnnStatus aclInitTensor(aclTensor *tensor, const int64_t *viewDims, uint64_t viewDimsNum,
                                              aclDataType dataType, const int64_t *stride, int64_t offset,
                                              aclFormat format, const int64_t *storageDims, uint64_t storageDimsNum,
                                              void *tensorDataAddr);
/* Leaves the data alone. */
ACL_FUNC_VISIBILITY aclnnStatus aclDestroyTensor(const aclTensor *tensor);

/* The arrays are the caller's: delete[] in C++, free() in C. */
ACL_FUNC_VISIBILITY aclnnStatus aclGetViewShape(const aclTensor *tensor, int64_t **viewDims, uint64_t *viewDimsNum);
ACL_FUNC_VISIBILITY aclnnStatus aclGetStorageShape(const aclTensor *tensor, int64_t **storageDims,
                                                   uint64_t *storageDimsNum);
ACL_FUNC_VISIBILITY aclnnStatus aclGetViewStrides(const aclTensor *tensor, int64_t **stridesValue,
                                                  uint64_t *stridesNum);
ACL_FUNC_VISIBILITY aclnnStatus aclGetViewOffset(const aclTensor *tensor, int64_t *offset);
ACL_FUNC_VISIBILITY aclnnStatus aclGetFormat(const aclTensor *tensor, aclFormat *format);
ACL_FUNC_VISIBILITY aclnnStatus aclGetDataType(const aclTensor *tensor, aclDataType *dataType);
ACL_FUNC_VISIBILITY aclnnStatus aclGetRawTensorAddr(const aclTensor *tensor, void **addr);
ACL_FUNC_VISIBILITY aclnnStatus aclSetRawTensorAddr(aclTensor *tensor, void *addr);

/* An executor serves one second phase, unless it is made repeatable; then the program destroys it. */
ACL_FUNC_VISIBILITY aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor *executor);
ACL_FUNC_VISIBILITY aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor *executor);

/* Other storage for a tensor of a repeatable executor. */
ACL_FUNC_VISIBILITY aclnnStatus aclSetInputTensorAddr(aclOpExecutor *executor, const size_t index, aclTensor *tensor,
                                                      void *addr);
ACL_FUNC_VISIBILITY aclnnStatus aclSetOutputTensorAddr(aclOpExecutor *executor, const size_t index, aclTensor *tensor,
                                                       void *addr);
ACL_FUNC_VISIBILITY aclnnStatus aclSetTensorAddr(aclOpExecutor *executor, const size_t index, aclTensor *tensor,
                                                 void *addr);
ACL_FUNC_VISIBILITY aclnnStatus AclSetInputTensorAddr(aclOpExecutor *executor, const size_t index, aclTensor *tensor,
                                                      void *addr);
ACL_FUNC_VISIBILITY aclnnStatus AclSetOutputTensorAddr(aclOpExecutor *executor, const size_t index, aclTensor *tensor,
                                                       void *addr);
ACL_FUNC_VISIBILITY aclnnStatus AclSetTensorAddr(aclOpExecutor *executor, const size_t index, aclTensor *tensor,
                                                 void *addr);

#ifdef __cplusplus
}
#endif

#endif
