/* AscendCL of the emulator: start, stop, and everything in acl_base.h and acl_rt.h. */
#ifndef AICORE_ACL_ACL_H
#define AICORE_ACL_ACL_H

#include "acl/acl_base.h"
#include "acl/acl_rt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* configPath: NULL, or the path of a JSON file. */
ACL_FUNC_VISIBILITY aclError aclInit(const char *configPath);
ACL_FUNC_VISIBILITY aclError aclFinalize(void);

#ifdef __cplusplus
}
#endif

#endif
