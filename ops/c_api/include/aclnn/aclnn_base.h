/* Start and stop of the operator interface alone. aclInit does it as well; calling both is no error. */
#ifndef AICORE_ACLNN_ACLNN_BASE_H
#define AICORE_ACLNN_ACLNN_BASE_H

#include "aclnn/acl_meta.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnInit(const char *configPath);
ACL_FUNC_VISIBILITY aclnnStatus aclnnFinalize(void);

#ifdef __cplusplus
}
#endif

#endif
