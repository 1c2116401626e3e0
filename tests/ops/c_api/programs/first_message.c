/* The status and the message of the first call. */
#include <stdio.h>

#include "acl/acl.h"

int main(void)
{
    int status = aclInit(NULL);
    const char *message = aclGetRecentErrMsg();

    printf("%d %s\n", status, message ? message : "no message");
    return 0;
}
