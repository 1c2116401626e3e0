/* aclFloat16ToFloat and aclFloatToFloat16 against plain arithmetic. */
#include <float.h>
#include <math.h>
#include <stdio.h>

#include "acl/acl.h"

static int wrong = 0;

static void check(int right, const char *what, double value)
{
    if (!right && wrong++ < 10)
        printf("%s of %a\n", what, value);
}

int main(void)
{
    for (unsigned bits = 0; bits < 65536; bits++) {
        unsigned exponent = bits >> 10 & 31, mantissa = bits & 1023;
        double value = exponent ? ldexp(1024 + mantissa, (int)exponent - 25) : ldexp(mantissa, -24);
        float got = aclFloat16ToFloat((aclFloat16)bits);

        if (bits & 0x8000)
            value = -value;
        check(got == (float)value && !signbit(got) == !signbit(value), "to float", value);
        if (exponent == 31)
            continue;
        check(aclFloatToFloat16((float)value) == bits, "back", value);
        if ((bits & 0x7fff) != 0x7bff && !(bits & 0x8000)) { /* half way to the next: to the even one */
            double next = (double)aclFloat16ToFloat((aclFloat16)(bits + 1)), middle = (value + next) / 2;
            unsigned even = bits + (bits & 1);

            check(aclFloatToFloat16((float)middle) == even, "tie", middle);
            check(aclFloatToFloat16(nextafterf((float)middle, 0)) == bits, "below a tie", middle);
            check(aclFloatToFloat16(nextafterf((float)middle, FLT_MAX)) == bits + 1, "above a tie", middle);
        }
    }
    check(aclFloatToFloat16(INFINITY) == 0x7bff, "infinity", INFINITY);
    check(aclFloatToFloat16(-INFINITY) == 0xfbff, "infinity", -INFINITY);
    check(aclFloatToFloat16(NAN) == 0x7bff, "NaN", NAN);
    check(aclFloatToFloat16(65520) == 0x7bff, "overflow", 65520);
    check(aclFloatToFloat16(FLT_MAX) == 0x7bff, "overflow", FLT_MAX);
    check(aclFloatToFloat16(-1e-30f) == 0x8000, "underflow", -1e-30);
    printf("%d wrong\n", wrong);
    return wrong != 0;
}
