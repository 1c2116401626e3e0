"""stub"""
def fast_errors(plan, grad_out, input, sums, tiers):
    return [None] * plan.channels
